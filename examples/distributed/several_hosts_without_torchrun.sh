#!/usr/bin/env bash
# Several hosts with GPUs, started by fairseq itself; run it on each of them: bash several_hosts_without_torchrun.sh FLAGS-OF-FAIRSEQ-TRAIN...
# The variables are those of several_hosts.sh.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
need FIRST "name the first host"
need RANK_OF_HOST "number the hosts from 0 on"
gpus=${GPUS_PER_HOST:-8}

# The rank of this host's first process. Its other processes have the next ranks.
run fairseq-train "${training[@]}" --distributed-init-method "tcp://$FIRST:${PORT:-29500}" \
    --distributed-world-size $((${HOSTS:-2} * gpus)) --distributed-rank $((RANK_OF_HOST * gpus)) "$@"

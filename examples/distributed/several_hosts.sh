#!/usr/bin/env bash
# Several hosts with GPUs, started by torchrun; run it on each of them, in any order: bash several_hosts.sh FLAGS-OF-FAIRSEQ-TRAIN...
#   FIRST=HOST       name or address of the first host, reachable from the others
#   HOSTS=2          number of hosts
#   RANK_OF_HOST=0   index of this host, from 0
#   GPUS_PER_HOST=8  ranks per host
#   PORT=29500       a port of the first host that the others can reach
#   DRY_RUN=1        print the command without running it
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
need FIRST "name the first host"
need RANK_OF_HOST "number the hosts from 0 on"
hosts=${HOSTS:-2} gpus=${GPUS_PER_HOST:-8}

run torchrun --nnodes "$hosts" --node-rank "$RANK_OF_HOST" --nproc-per-node "$gpus" \
    --master-addr "$FIRST" --master-port "${PORT:-29500}" \
    --module fairseq_cli.train "${training[@]}" --distributed-world-size $((hosts * gpus)) "$@"

#!/usr/bin/env bash
# Several hosts with GPUs, started by torchrun; run it on each of them, in any order: bash several_hosts.sh FLAGS-OF-FAIRSEQ-TRAIN...
#   FIRST=HOST       name or address of the first host, as the others reach it
#   HOSTS=2          how many there are
#   RANK_OF_HOST=0   which of them this is, from 0 on
#   GPUS_PER_HOST=8  processes on each
#   PORT=29500       a port of the first host that the others can reach
#   DRY_RUN=1        print the command, do not run it
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
need FIRST "name the first host"
need RANK_OF_HOST "number the hosts from 0 on"
hosts=${HOSTS:-2} gpus=${GPUS_PER_HOST:-8}

run torchrun --nnodes "$hosts" --node-rank "$RANK_OF_HOST" --nproc-per-node "$gpus" \
    --master-addr "$FIRST" --master-port "${PORT:-29500}" \
    --module fairseq_cli.train "${training[@]}" --distributed-world-size $((hosts * gpus)) "$@"

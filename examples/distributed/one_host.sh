#!/usr/bin/env bash
# All GPUs of this host, started by fairseq itself: bash one_host.sh FLAGS-OF-FAIRSEQ-TRAIN...
#   GPUS=0,1,2,3     which GPUs (default: all)
#   DRY_RUN=1        print the command without running it
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
[[ -z ${GPUS:-} ]] || export CUDA_VISIBLE_DEVICES=$GPUS

run fairseq-train "${training[@]}" "$@"

#!/usr/bin/env bash
# Multi30k English-German with backward passes through frozen layers skipped; see ../multi30k.sh for the other settings.
#   KIND=synthetic  synthetic or reinforce: where the gradient below a frozen layer comes from; none: from the layer, as always
#   PLAN=LTLTL      encoder
#   UPDATES=700     updates, over which the learning rate falls to 0
# Arguments go to fairseq-train, as in: KIND=reinforce bash run.sh --backskip-warmup 200
set -euo pipefail
kind=${KIND:-synthetic} plan=${PLAN:-LTLTL} updates=${UPDATES:-700}
case $kind in
    none) skip=() ;;
    synthetic | reinforce) skip=(--backskip "$kind") ;;
    *) echo "backskip: KIND='$kind': none, synthetic or reinforce" >&2; exit 2 ;;
esac
NAME=backskip-$kind-$plan-$updates exec bash "$(dirname "${BASH_SOURCE[0]}")/../multi30k.sh" \
    --arch reservoir_transformer_study --reservoir-encoder "$plan" --decoder-layers 2 ${skip[@]+"${skip[@]}"} --dropout 0.1 \
    --max-tokens 2048 --lr 2e-3 --lr-scheduler polynomial_decay --warmup-updates 200 --total-num-update "$updates" \
    --max-update "$updates" "$@"

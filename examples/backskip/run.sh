#!/usr/bin/env bash
# Multi30k English-German, skipping the backward pass through frozen layers; ../multi30k.sh lists the other settings.
#   KIND=synthetic  synthetic, reinforce or identity: estimate of the gradient below a frozen layer; none: the true gradient,
#                   without --backskip-... flags
#   PLAN=LTLTL      encoder
#   UPDATES=700, LR=4e-3   see ../reservoir_transformers/multi30k.sh
# Arguments go to fairseq-train, as in: KIND=reinforce bash run.sh --backskip-warmup 200
set -euo pipefail
examples=$(dirname "${BASH_SOURCE[0]}")/..
. "$examples/steps.sh"
kind=${KIND:-synthetic} plan=${PLAN:-LTLTL}
case $kind in
    none) skip=() ;;
    synthetic | reinforce | identity) skip=(--backskip "$kind") ;;
    *) echo "backskip: KIND='$kind': choose none, synthetic, reinforce or identity" >&2; exit 2 ;;
esac
NAME=backskip-$kind-$plan$(tag "$@") PLAN=$plan exec bash "$examples/reservoir_transformers/multi30k.sh" \
    ${skip[@]+"${skip[@]}"} "$@"

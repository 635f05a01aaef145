#!/usr/bin/env bash
# Multi30k English-German with backward passes through frozen layers skipped; see ../multi30k.sh for the other settings.
#   KIND=synthetic  synthetic, reinforce or identity: where the gradient below a frozen layer comes from; none: from the layer, as
#                   always, and then there are no --backskip-... to give
#   PLAN=LTLTL      encoder
#   UPDATES=700, LR=4e-3   see ../reservoir_transformers/multi30k.sh
# Arguments go to fairseq-train, as in: KIND=reinforce bash run.sh --backskip-warmup 200
set -euo pipefail
kind=${KIND:-synthetic} plan=${PLAN:-LTLTL}
case $kind in
    none) skip=() ;;
    synthetic | reinforce | identity) skip=(--backskip "$kind") ;;
    *) echo "backskip: KIND='$kind': none, synthetic, reinforce or identity" >&2; exit 2 ;;
esac
NAME=backskip-$kind-$plan PLAN=$plan exec bash "$(dirname "${BASH_SOURCE[0]}")/../reservoir_transformers/multi30k.sh" \
    ${skip[@]+"${skip[@]}"} "$@"

#!/usr/bin/env bash
# Multi30k English-German with one kind of token mixing; ../multi30k.sh lists the other settings.
#   ARM=NAME        one of the names below; README.md explains these models
#   UPDATES=700, LR=4e-3   see ../reservoir_transformers/multi30k.sh
# Arguments go to fairseq-train, as in: ARM=fnet bash run.sh --max-update 20
set -euo pipefail
examples=$(dirname "${BASH_SOURCE[0]}")/..
. "$examples/steps.sh"
arm=${ARM:-} encoder=LLLL decoder=LL freeze=
case $arm in
    attention) ;;
    fnet) encoder=MMMM ;;
    fnet-bottom) encoder=LLMM ;;
    fnet-middle) encoder=MLLM ;;
    fnet-mixed) encoder=LMLM ;;
    fnet-top) encoder=MMLL ;;
    fnet-random) encoder=SSSS freeze=encoder.v,encoder.o ;;
    ff-only) encoder=ffff ;;
    ff-bottom) encoder=LLff ;;
    ff-middle) encoder=fLLf ;;
    ff-top) encoder=ffLL ;;
    random) encoder=SSSS ;;
    learned) encoder=ssss ;;
    mixit) encoder=SSSS decoder=SS ;;
    mixer) encoder=ssss decoder=ss ;;
    frozen-qk) freeze=q,k ;;
    *) echo "frozen_mixing: ARM='$arm': name one of the arms in $(dirname "${BASH_SOURCE[0]}")/README.md" >&2; exit 2 ;;
esac
NAME=$arm$(tag "$@") PLAN=$encoder DECODER=$decoder exec bash "$examples/reservoir_transformers/multi30k.sh" \
    ${freeze:+--freeze "$freeze"} "$@"

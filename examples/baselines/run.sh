#!/usr/bin/env bash
# Multi30k English-German with frozen layers, or with a baseline; ../multi30k.sh lists the other settings.
#   ARM=NAME        one of the names below; README.md explains them
#   UPDATES=700, LR=4e-3   see ../reservoir_transformers/multi30k.sh
# Arguments go to fairseq-train, as in: ARM=shallow bash run.sh --max-update 20
set -euo pipefail
examples=$(dirname "${BASH_SOURCE[0]}")/..
. "$examples/steps.sh"
arm=${ARM:-} decoder=LL flags=()
body=(--reservoir-train-layernorm)
case $arm in
    frozen) plan=LFLFL ;;
    frozen-transformer) plan=LTLTL ;;
    full) plan=LLLLL ;;
    layerdrop) plan=LLLLL flags=(--encoder-layerdrop 0.2) ;;
    small) plan=LLLLL flags=(--encoder-ffn-embed-dim 203 --decoder-ffn-embed-dim 512) ;;
    without) plan=LLL ;;
    shallow) plan=LLLL ;;
    trained) plan=LfLfL ;;
    body) plan=TTTTT decoder=TT flags=("${body[@]}") ;;
    lora) plan=TTTTT decoder=TT flags=("${body[@]}" --frozen-adapter lora) ;;
    lora-62) plan=TTTTT decoder=TT flags=("${body[@]}" --frozen-adapter lora --frozen-adapter-rank 62) ;;
    vera) plan=TTTTT decoder=TT flags=("${body[@]}" --frozen-adapter vera --frozen-adapter-rank 64) ;;
    *) echo "baselines: ARM='$arm': name one of the arms in $(dirname "${BASH_SOURCE[0]}")/README.md" >&2; exit 2 ;;
esac
NAME=baseline-$arm$(tag "$@") PLAN=$plan DECODER=$decoder exec bash "$examples/reservoir_transformers/multi30k.sh" \
    ${flags[@]+"${flags[@]}"} "$@"

#!/usr/bin/env bash
# Multi30k English-German with frozen layers, or with a baseline; see ../multi30k.sh for DATA, SEED, RUNS and DRY_RUN.
#   ARM=NAME        one of the names below; README.md says what each asks
#   UPDATES=700     updates, over which the learning rate falls to 0
#   LR=2e-3         highest learning rate
# Arguments go to fairseq-train, as in: ARM=shallow bash run.sh --max-update 20
set -euo pipefail
arm=${ARM:-} updates=${UPDATES:-700} rate=${LR:-2e-3} decoder=LL flags=()
body=(--reservoir-train-layernorm)
case $arm in
    frozen) plan=LFLFL ;;
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
NAME=baseline-$arm-$updates-$rate exec bash "$(dirname "${BASH_SOURCE[0]}")/../multi30k.sh" \
    --arch reservoir_transformer_study --reservoir-encoder "$plan" --reservoir-decoder "$decoder" "${flags[@]}" \
    --dropout 0.1 --max-tokens 2048 --lr "$rate" --lr-scheduler polynomial_decay --warmup-updates 200 \
    --total-num-update "$updates" --max-update "$updates" "$@"

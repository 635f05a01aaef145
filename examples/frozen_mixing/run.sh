#!/usr/bin/env bash
# Multi30k English-German with one way of mixing words; see ../multi30k.sh for DATA, SEED, RUNS and DRY_RUN.
#   ARM=NAME        one of the names below; README.md says what each means
#   UPDATES=700     updates, over which the learning rate falls to 0
# Arguments go to fairseq-train, as in: ARM=fnet bash run.sh --max-update 20
set -euo pipefail
arm=${ARM:-} updates=${UPDATES:-700} encoder=LLLL decoder=LL freeze=
case $arm in
    attention) ;;
    fnet) encoder=MMMM ;;
    fnet-bottom) encoder=LLMM ;;
    fnet-middle) encoder=MLLM ;;
    fnet-mixed) encoder=LMLM ;;
    fnet-top) encoder=MMLL ;;
    fnet-random) encoder=SSSS freeze=encoder.v,encoder.o ;;
    ff-only) encoder=ffff ;;
    random) encoder=SSSS ;;
    learned) encoder=ssss ;;
    mixit) encoder=SSSS decoder=SS ;;
    mixer) encoder=ssss decoder=ss ;;
    frozen-qk) freeze=q,k ;;
    *) echo "frozen_mixing: ARM='$arm': name one of the arms in $(dirname "${BASH_SOURCE[0]}")/README.md" >&2; exit 2 ;;
esac
NAME=$arm-$updates exec bash "$(dirname "${BASH_SOURCE[0]}")/../multi30k.sh" \
    --arch reservoir_transformer_study --reservoir-encoder "$encoder" --reservoir-decoder "$decoder" \
    ${freeze:+--freeze "$freeze"} --dropout 0.1 --max-tokens 2048 --lr 2e-3 \
    --lr-scheduler polynomial_decay --warmup-updates 200 --total-num-update "$updates" --max-update "$updates" "$@"

#!/usr/bin/env bash
# Multi30k English-German with one layer plan; see ../multi30k.sh for DATA, SEED, RUNS, DRY_RUN, GPUS and MINI.
#   PLAN=LLL        layer plan of the encoder; DECODER=LL that of the decoder
#   UPDATES=700     updates of 2,048 tokens, over which the learning rate falls to 0; BLEU of val is measured ten times on the way
#   LR=4e-3         highest learning rate
#   NAME=$PLAN-$DECODER   the run's folder, to which -UPDATES-LR-SEED is added; the default includes the arguments
# Arguments go to fairseq-train, as in: PLAN=LTLTL bash multi30k.sh --max-update 20
set -euo pipefail
examples=$(dirname "${BASH_SOURCE[0]}")/..
. "$examples/steps.sh"
plan=${PLAN:-LLL} decoder=${DECODER:-LL} updates=${UPDATES:-700} rate=${LR:-4e-3}
NAME=${NAME:-$plan-$decoder$(tag "$@")}-$updates-$rate exec bash "$examples/multi30k.sh" \
    --arch reservoir_transformer_study --reservoir-encoder "$plan" --reservoir-decoder "$decoder" --encoder-normalize-before \
    --decoder-normalize-before --dropout 0.1 --max-tokens 2048 --lr "$rate" --lr-scheduler polynomial_decay --warmup-updates 200 \
    --total-num-update "$updates" --max-update "$updates" --validate-interval 1000 \
    --validate-interval-updates $(((updates + 9) / 10)) --eval-bleu --eval-bleu-args '{"beam": 1}' \
    --eval-bleu-remove-bpe sentencepiece "$@"

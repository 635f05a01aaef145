#!/usr/bin/env bash
# Multi30k English-German with one layer plan; see ../multi30k.sh for DATA, SEED, RUNS and DRY_RUN.
#   PLAN=LLL        layer plan of the encoder; DECODER=LL that of the decoder
# Arguments go to fairseq-train, as in: PLAN=LTLTL bash multi30k.sh --max-update 20
set -euo pipefail
plan=${PLAN:-LLL} decoder=${DECODER:-LL}
NAME=$plan-$decoder exec bash "$(dirname "${BASH_SOURCE[0]}")/../multi30k.sh" \
    --arch reservoir_transformer_study --reservoir-encoder "$plan" --reservoir-decoder "$decoder" --dropout 0.1 \
    --lr 2e-3 --lr-scheduler inverse_sqrt --warmup-updates 800 --max-epoch 10 "$@"

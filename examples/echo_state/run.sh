#!/usr/bin/env bash
# How long deep encoders with random layers take to their best BLEU on IWSLT14: every depth and kind, then one report of all.
#   BIN=FOLDER      what scripts/prepare_iwslt14.sh made
#   DEPTHS="6 8 10 12"   layers of the encoder
#   KINDS="L T F drop"   see ../reservoir_transformers/iwslt14.sh, which trains
#   FROZEN=2        random layers in each
#   SEEDS="1 2 3"   random seeds
#   RUNS=FOLDER     where everything goes, instead of runs/iwslt14; the report in RUNS/report
#   DRY_RUN, GPUS, MINI   see ../common.sh
# Arguments go to every fairseq-train. Interrupt it and run it again: what is finished is kept, and training resumes.
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/../common.sh" echo_state
export FROZEN=${FROZEN:-2} RUNS=${RUNS:-runs/iwslt14}
for seed in ${SEEDS:-1 2 3}; do
    for depth in ${DEPTHS:-6 8 10 12}; do
        for kind in ${KINDS:-L T F drop}; do
            DATA='' KIND=$kind DEPTH=$depth SEED=$seed bash "$here/../reservoir_transformers/iwslt14.sh" "$@"
        done
    done
done
run fairseq-reservoir report "$RUNS" --out "$RUNS/report" --against encoder_layers

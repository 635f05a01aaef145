#!/usr/bin/env bash
# Time to the best BLEU of deep encoders with random layers on IWSLT14: every depth and kind, then one report.
#   BIN=FOLDER      made by scripts/prepare_iwslt14.sh
#   DEPTHS="4 6 8 10 12"   layers of the encoder
#   KINDS="L T F drop"   see ../reservoir_transformers/iwslt14.sh
#   FROZEN=2        random layers in each encoder
#   SEEDS="1 2 3"   random seeds
#   RUNS=FOLDER     output folder (default: runs/iwslt14); the report is in RUNS/report
#   DRY_RUN, GPUS, MINI   see ../common.sh
# Arguments go to every fairseq-train. You can interrupt it and run it again: finished steps are kept, and training resumes.
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/../common.sh" echo_state
export FROZEN=${FROZEN:-2} RUNS=${RUNS:-runs/iwslt14}
depths=${DEPTHS:-4 6 8 10 12} kinds=${KINDS:-L T F drop}
for seed in ${SEEDS:-1 2 3}; do
    for depth in $depths; do
        for kind in $kinds; do
            DATA='' KIND=$kind DEPTH=$depth SEED=$seed bash "$here/../reservoir_transformers/iwslt14.sh" "$@"
        done
    done
done
baseline=()  # times are relative to the trained models
[[ " $kinds " != *" L "* ]] || baseline=(--baseline "L-${depths%% *}-0$(tag "$@")")
run fairseq-reservoir report "$RUNS" --out "$RUNS/report" --against encoder_layers ${baseline[@]+"${baseline[@]}"}

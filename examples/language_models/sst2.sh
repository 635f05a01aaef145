#!/usr/bin/env bash
# Fine-tunes a masked language model of run.sh on SST-2. Prints its accuracy and the share of the most frequent class.
#   ARM, SEED, RUNS   as given to run.sh
#   UPDATES=N       updates of the masked language model, as given to run.sh; 0: an untrained model, as a control
#   PRETRAINED=FOLDER   folder of the masked language model (default: the one that run.sh makes if it gets no further arguments)
#   DATA=FOLDER     train.tsv and dev.tsv; see ../one_layer_supermask/sst2.sh
#   FINETUNE=200    updates on SST-2, over which the learning rate falls to 0
#   DRY_RUN, GPUS, MINI   see ../common.sh
# Arguments go to fairseq-train. Frozen parts of an arm stay frozen.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
runs=${RUNS:-runs/${MINI:+mini/}language_models} arm=${ARM:-} updates=${UPDATES:-1000} finetune=${FINETUNE:-200}
. "$here/arms.sh" "$arm" masked
[[ -z ${MINI:-} ]] || { RUNS=$runs MODEL=masked UPDATES=$updates bash "$here/run.sh"; DATA=${DATA:-$runs/numbers}; export DATA; }
[[ -f $runs/masked/joint.model || -n ${DRY_RUN:-} ]] ||
    { echo "language_models: $runs/masked/joint.model does not exist; make it with MODEL=masked bash run.sh" >&2; exit 2; }
start=()
[[ $updates == 0 ]] || start=(--finetune-from-model "${PRETRAINED:-$runs/masked-$arm-$updates-${SEED:-1}}/checkpoint_last.pt")

PIECES=$runs/masked/joint.model DICT=$runs/bin-masked/dict.txt RUNS=$runs/sst2 NAME=$arm-$updates ARCH=reservoir_roberta_study \
    exec bash "$here/../one_layer_supermask/sst2.sh" --reservoir-encoder "$plan" ${spec[@]+"${spec[@]}"} ${start[@]+"${start[@]}"} \
    --dropout 0.1 --lr 1e-3 --warmup-updates 40 --total-num-update "$finetune" --max-update "$finetune" "$@"

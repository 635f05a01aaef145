#!/usr/bin/env bash
# QQP or MNLI with masks on one random layer; the embeddings can be those of a trained RoBERTa. Prints the accuracy on the valid set.
#   GLUE=FOLDER     the task, made by scripts/prepare_glue.sh, as data-bin/glue/QQP
#   CLASSES=2       number of classes: 2, or 3 for MNLI
#   FROM=FILE       checkpoint of a trained RoBERTa for masked embeddings; default: random embeddings
#   SIZE=base       or large
#   KEEP=0.7        share of the weights that masks keep
#   FINETUNE=100000 updates
#   SEED=1          random seed
#   RUNS=FOLDER     output folder (default: runs/glue-masks)
#   DRY_RUN, GPUS, MINI   see ../common.sh; an update has at least as many tokens as on one GPU
# Arguments go to fairseq-train.
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/../common.sh" glue
. "$here/../classification.sh"
glue=${GLUE:-} from=${FROM:-} size=${SIZE:-base} keep=${KEEP:-0.7} finetune=${FINETUNE:-100000} seed=${SEED:-1} runs=${RUNS:-runs/glue-masks}
if [[ -z $glue && -n ${MINI:-} ]]; then
    glue=$runs/bin-phrases
    binarise_phrases "$glue" "$DATA" 300 "$runs/phrases"
fi
[[ -n $glue ]] || die "GLUE is not set: name the folder of a task that scripts/prepare_glue.sh made"
[[ -n $dry || -f $glue/label/dict.txt ]] || die "GLUE=$glue: label/dict.txt is missing"
[[ -z $from || -n $dry || -f $from ]] || die "FROM=$from: no such file"
classes "${CLASSES:-2}"
out=$runs/$(basename "$glue")-$size-keep$keep${from:+-vectors}-$seed
classification "$glue" "$out" valid --arch "$(preset supermask_one_layer_roberta "$size")" --mask-keep-ratio "$keep" \
    --mask-init-weights kaiming_uniform ${from:+--mask-embeddings-from "$from"} --dropout 0.1 --attention-dropout 0.1 --lr 1e-4 \
    --clip-norm 0.5 --batch-size 32 --warmup-updates $((finetune * 6 / 100)) --total-num-update "$finetune" \
    --max-update "$finetune" --update-freq "$(as_many_as 1)" "$@"
run grep -o '"valid_accuracy": "[^"]*"' "$out/validate.log"

#!/usr/bin/env bash
# QQP or MNLI with masks on one random layer, or with a trained RoBERTa, fine-tuned as by Liu et al. (2019). Prints the accuracy on the valid set.
#   GLUE=FOLDER     folder of a task, made by scripts/prepare_glue.sh, such as data-bin/glue/QQP
#   CLASSES=2       number of classes: 2, or 3 for MNLI
#   ARM=masks       masks: masks on random layers; dense: RoBERTa, everything is trained
#   FROM=FILE       checkpoint of a trained RoBERTa; ARM=masks uses its embeddings, ARM=dense all its weights; default: random values
#   SIZE=base       base; large: width 1024 and 24 layers; wide: the width of large and the 12 layers of base
#   LAYERS=layer    layer: one random layer is used at all depths; none: each depth has its own
#   KEEP=0.7        share of the weights that masks keep
#   INIT=paper_code random weights: as in the paper's code, N(0, 0.02^2) in a RoBERTa; for others see --mask-init-weights
#   NORM=plain      LayerNorms without gain and bias, as in the one-layer model; affine: their gain and bias are trained
#   LR=1e-5         highest learning rate; Liu et al. choose among 1e-5, 2e-5 and 3e-5
#   EPOCHS=10       epochs of the task, in updates of 32 sentences; FINETUNE=N: N updates instead
#   SEED=1          random seed
#   RUNS=FOLDER     output folder (default: runs/glue-masks)
#   DRY_RUN, GPUS, MINI   see ../common.sh; an update has at least as many tokens as on one GPU
# Arguments go to fairseq-train.
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/../common.sh" glue
. "$here/../classification.sh"
glue=${GLUE:-} from=${FROM:-} arm=${ARM:-masks} size=${SIZE:-base} layers=${LAYERS:-layer} keep=${KEEP:-0.7} init=${INIT:-paper_code}
norm=${NORM:-plain} rate=${LR:-1e-5} seed=${SEED:-1} runs=${RUNS:-runs/glue-masks}
if [[ -z $glue && -n ${MINI:-} ]]; then
    glue=$runs/bin-phrases
    binarise_phrases "$glue" "$DATA" 300 "$runs/phrases"
fi
[[ -n $glue ]] || die "GLUE is not set: name the folder of a task that scripts/prepare_glue.sh made"
[[ -n $dry || -f $glue/label/dict.txt ]] || die "GLUE=$glue: label/dict.txt is missing"
[[ -z $from || -n $dry || -f $from ]] || die "FROM=$from: no such file"
classes "${CLASSES:-2}"
sentences=363846  # QQP's training set
[[ ${CLASSES:-2} != 3 ]] || sentences=392702  # MNLI's
finetune=${FINETUNE:-$((${EPOCHS:-10} * ((sentences + 31) / 32)))}

shape=$size flags=()
case $size in
    base | large) ;;
    wide) shape=large flags=(--encoder-layers 12) ;;
    *) die "SIZE='$size': choose base, wide or large" ;;
esac
[[ -z ${MINI:-} ]] || flags=()
case $arm in
    masks)
        flags=(--arch "$(preset supermask_one_layer_roberta "$shape")" ${flags[@]+"${flags[@]}"} --mask-keep-ratio "$keep" --mask-share "$layers"
            --mask-init-weights "$init" --mask-layernorm "$norm" ${from:+--mask-embeddings-from "$from"})
        name=$size-keep$keep-$layers-$init-$norm ;;
    dense)
        [[ -z ${KEEP:-}${LAYERS:-}${INIT:-}${NORM:-} ]] || die "ARM=dense: KEEP, LAYERS, INIT and NORM are for masks"
        flags=(--arch "$(preset reservoir_roberta "$shape")" ${flags[@]+"${flags[@]}"} ${from:+--finetune-from-model "$from"})
        name=$size-dense ;;
    *) die "ARM='$arm': choose masks or dense" ;;
esac
out=$runs/$(basename "$glue")-$name-lr$rate-$finetune${from:+-pretrained}$(tag "$@")-$seed
classification "$glue" "$out" valid "${flags[@]}" --dropout 0.1 --attention-dropout 0.1 --weight-decay 0.1 --adam-eps 1e-6 --lr "$rate" \
    --clip-norm 0.0 --batch-size 32 --warmup-updates $((finetune * 6 / 100)) --total-num-update "$finetune" \
    --max-update "$finetune" --update-freq "$(as_many_as 1)" "$@"
run grep -o '"valid_accuracy": "[^"]*"' "$out/validate.log"

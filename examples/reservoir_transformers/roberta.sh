#!/usr/bin/env bash
# A RoBERTa with reservoirs, pretrained on a text and fine-tuned on a task of GLUE; prints the accuracy on the task's valid set.
#   BIN=FOLDER      the text, made by fairseq-preprocess --only-source
#   GLUE=FOLDER     a task, made by scripts/prepare_glue.sh with the text's own units and dictionary (--codes, --dict)
#   CLASSES=2       number of classes: 2, or 3 for MNLI
#   KIND=F          L: all layers are trained; T, F, G or C: kind of the FROZEN reservoirs; drop: LayerDrop skips FROZEN layers on average
#   DEPTH=12        layers, including reservoirs
#   FROZEN=4        number of reservoirs
#   UPDATES=125000  updates of pretraining
#   FINETUNE=20000  updates of fine-tuning
#   SEED=1          random seed
#   RUNS=FOLDER     output folder (default: runs/roberta)
#   DRY_RUN, GPUS, MINI   see ../common.sh; in pretraining an update has at least as many tokens as on 32 GPUs, in fine-tuning as on one GPU
# Arguments go to both trainings, as in: KIND=T bash roberta.sh --fp16. All tasks share the pretraining, so give the same arguments for each.
# You can interrupt it and run it again: finished steps are kept.
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/../common.sh" roberta
. "$here/../text.sh"
. "$here/../classification.sh"
stack=encoder kind=${KIND:-F} depth=${DEPTH:-12} frozen=${FROZEN:-4} seed=${SEED:-1} runs=${RUNS:-runs/roberta}
bin=${BIN:-} glue=${GLUE:-} updates=${UPDATES:-125000} finetune=${FINETUNE:-20000}
. "$here/kinds.sh"
if [[ -z $bin$glue && -n ${MINI:-} ]]; then
    bin=$runs/bin-text glue=$runs/bin-phrases data=$DATA
    binarise_text "$bin" "$runs/pieces" python "$here/../quickstart/pieces.py" "$runs/text" txt txt 300 "$runs/pieces"
    binarise_phrases "$glue" "$data" "$runs/pieces/joint.model" "$runs/phrases" "$bin/dict.txt"
fi
[[ -n $bin && -n $glue ]] || die "BIN='$bin' GLUE='$glue': name the folder of a text, and that of a task that scripts/prepare_glue.sh made"
[[ -n $dry || -f $bin/train.idx ]] || die "BIN=$bin: train.idx is missing"
[[ -n $dry || -f $glue/label/dict.txt ]] || die "GLUE=$glue: label/dict.txt is missing"

arm=$kind-$depth-$frozen-$updates$(tag "$@")-$seed
pretrained=$runs/pretrained-$arm out=$runs/$(basename "$glue")-$arm
model=(--arch "$(preset reservoir_roberta base)" "${model[@]}")
fit "$bin" "$pretrained" --task masked_lm --criterion masked_lm "${model[@]}" --tokens-per-sample 512 \
    --sample-break-mode complete --dropout 0.1 --attention-dropout 0.1 --weight-decay 0.01 --optimizer adam \
    --adam-betas '(0.9, 0.98)' --adam-eps 1e-6 --lr 6e-4 --lr-scheduler polynomial_decay --warmup-updates 10000 \
    --total-num-update "$updates" --max-update "$updates" --max-tokens 8192 --update-freq "$(as_many_as 32)" \
    --no-epoch-checkpoints --save-interval-updates 5000 --keep-interval-updates 1 --num-workers 0 --log-format json \
    --log-interval 100 "$@"
classes "${CLASSES:-2}"
classification "$glue" "$out" valid "${model[@]}" --finetune-from-model "$pretrained/checkpoint_best.pt" \
    --dropout 0.1 --attention-dropout 0.1 --weight-decay 0.1 --adam-eps 1e-6 --lr 1e-5 --clip-norm 0.0 --batch-size 32 \
    --warmup-updates $((finetune * 6 / 100)) --total-num-update "$finetune" --max-update "$finetune" \
    --update-freq "$(as_many_as 1)" "$@"
run grep -o '"valid_accuracy": "[^"]*"' "$out/validate.log"

#!/usr/bin/env bash
# One arm of the study of pretrained and frozen Transformers: fine-tunes a small language model on a task at each learning rate
# and prints the share of correct answers. You can interrupt it and run it again: finished steps are kept, and training resumes.
#   DATA=FOLDER     train.txt, valid.txt and test.txt to pretrain on, plain or .gz
#   TASK=xor        memory, xor, listops or sst2
#   SST2=FOLDER     for sst2: train.tsv and dev.tsv, plain or .gz
#   ARM=NAME        trained, trained-pretrained, frozen-pretrained or frozen-random; README.md explains them
#   RATES="1e-3 4e-3 1.6e-2"   learning rates to try
#   UPDATES=1000    updates of a fine-tuning
#   PRETRAIN_UPDATES=2000      updates of the pretraining
#   SIZE=tiny       or study, base, ...: the preset of reservoir_transformer_lm
#   SEED=1          random seed
#   RUNS=FOLDER     output folder (default: runs/fpt)
#   DRY_RUN, GPUS, MINI   see ../common.sh
# Arguments go to every fairseq-train.
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/../common.sh" fpt
arm=${ARM:-} task=${TASK:-} rates=${RATES:-1e-3 4e-3 1.6e-2} updates=${UPDATES:-1000} pretraining=${PRETRAIN_UPDATES:-2000}
size=${SIZE:-tiny} seed=${SEED:-1} runs=${RUNS:-runs/fpt} data=${DATA:-} sst2=${SST2:-${MINI:+$DATA}}
pretrained=$runs/pretrained-$size-$pretraining$(tag "$@")-$seed bin=$runs/bin pieces=$runs/pieces work=$runs/$task lines=$runs/$task/lines
out=$runs/$task/$arm-$size-$updates$(tag "$@")-$seed

case $task in memory | xor | listops | sst2) ;; *) die "TASK='$task': name one of memory, xor, listops, sst2" ;; esac
spec=(--freeze-except ln,pos,emb,out) start=(--finetune-from-model "$pretrained/checkpoint_best.pt")
case $arm in
    trained) spec=() start=() ;;
    trained-pretrained) spec=() ;;
    frozen-pretrained) ;;
    frozen-random) start=() ;;
    *) die "ARM='$arm': name one of trained, trained-pretrained, frozen-pretrained, frozen-random" ;;
esac
[[ -n $data ]] || die "DATA is not set: name the folder with train.txt, valid.txt and test.txt (or .gz)"
there "$data"/{train,valid,test}.txt
[[ $task != sst2 || -n $sst2 ]] || die "SST2 is not set: name the folder with train.tsv and dev.tsv (or .gz)"

# train BIN FOLDER FLAGS...
train() {
    local bin=$1 out=$2
    shift 2
    fit "$bin" "$out" --task language_modeling --tokens-per-sample 64 --arch "reservoir_transformer_lm_$size" \
        --decoder-learned-pos --no-scale-embedding --dropout 0 --optimizer adam --adam-betas '(0.9, 0.98)' --clip-norm 1.0 \
        --lr-scheduler polynomial_decay --warmup-updates 100 --no-epoch-checkpoints --num-workers 0 --log-format json \
        --log-interval 100 "$@"
}

# phrases FOLDER TSV MODEL: SST-2 in the pieces of a text, with questions from dev
phrases() {
    run python "$here/../one_layer_supermask/sst2_pieces.py" "$2" "$3" "$1"
    for column in input0 label; do run mv "$1/dev.$column" "$1/test.$column"; done
    run python "$here/questions.py" "$1"
}

# exercises FOLDER TASK SEED
exercises() {
    run python "$here/tasks.py" "$2" "$3" "$1"
    run python "$here/questions.py" "$1"
}

# The text to pretrain on ends with a line of the tasks' symbols, so that they are in its dictionary.
for part in train valid test; do copy "$data/$part.txt" "$runs/text/$part.txt"; done
folder "$pieces" python "$here/../quickstart/pieces.py" "$runs/text" txt txt 1000 "$pieces"
written "$pieces/symbols.txt" python "$here/tasks.py" symbols
written "$pieces/train-and-symbols.txt" cat "$pieces/train.txt" "$pieces/symbols.txt"
folder "$bin" fairseq-preprocess --only-source --workers 1 --destdir "$bin" --trainpref "$pieces/train-and-symbols.txt" \
    --validpref "$pieces/valid.txt" --testpref "$pieces/test.txt"

if [[ ${#start[@]} != 0 ]]; then
    train "$bin" "$pretrained" --sample-break-mode none --lr 4e-3 --max-tokens 4096 \
        --total-num-update "$pretraining" --max-update "$pretraining" "$@"
fi

if [[ $task == sst2 ]]; then
    for part in train dev; do copy "$sst2/$part.tsv" "$work/tsv/$part.tsv"; done
    folder "$lines" phrases "$lines" "$work/tsv" "$pieces/joint.model"
else
    folder "$lines" exercises "$lines" "$task" 1
fi
folder "$work/bin" fairseq-preprocess --only-source --workers 1 --destdir "$work/bin" --srcdict "$bin/dict.txt" \
    --trainpref "$lines/train.txt" --validpref "$lines/valid.txt" --testpref "$lines/test.txt"
written "$work/questions.txt" cat "$lines/questions.txt"

for rate in $rates; do
    train "$work/bin" "$out/$rate" ${spec[@]+"${spec[@]}"} ${start[@]+"${start[@]}"} --sample-break-mode eos --lr "$rate" \
        --batch-size 64 --disable-validation --total-num-update "$updates" --max-update "$updates" "$@"
    written "$out/$rate/answers.log" fairseq-interactive "$bin" --user-dir "$root/fairseq_reservoir" --task language_modeling \
        --path "$out/$rate/checkpoint_last.pt" --input "$work/questions.txt" --beam 1 --max-len-a 1 --max-len-b 6 \
        --buffer-size 5000 --batch-size 250
done
run python "$here/report.py" "$lines/answers.tsv" "$out"

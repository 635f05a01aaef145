#!/usr/bin/env bash
# One arm of the study of pretrained and frozen Transformers: trains it on a task at each learning rate, and prints the accuracy on test
# at the rate that is best on valid. You can interrupt it and run it again: finished steps are kept, and training resumes.
#   TASK=xor        memory, xor, listops, mnist, cifar10 or cifar10-gray
#   FILES=FOLDER    files of listops, mnist and cifar10; listops without FILES draws short expressions. README.md lists their names
#   ARM=NAME        trained, trained-pretrained, frozen-pretrained, frozen-random, and the arms of the ablation; README.md explains them
#   FROM=FOLDER     GPT-2 for the pretrained arms, in Hugging Face's format. Without FROM, they start from a language model that
#                   is trained on DATA
#   DATA=FOLDER     train.txt, valid.txt and test.txt to pretrain on, plain or .gz
#   SIZE=tiny       size of random blocks: tiny (two blocks of width 64), gpt2 (default with FROM), gpt2-medium, gpt2-large or gpt2-xl.
#                   GPT-2 in FROM has its own size; without FROM, the pretrained arms need tiny
#   RATES="1e-6 1e-5 1e-4 1e-3 1e-2"   learning rates to try
#   UPDATES=2000    updates of 16 examples
#   PRETRAIN_UPDATES=2000      updates of the pretraining
#   SEED=1          random seed
#   RUNS=FOLDER     output folder (default: runs/fpt)
#   DRY_RUN, GPUS, MINI   see ../common.sh
# Arguments go to the fairseq-train of the task, as in: TASK=memory bash run.sh --bits 100 --chunk 10
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/../common.sh" fpt
. "$here/../text.sh"
arm=${ARM:-} task=${TASK:-} files=${FILES:-} from=${FROM:-} rates=${RATES:-1e-6 1e-5 1e-4 1e-3 1e-2} updates=${UPDATES:-2000}
pretraining=${PRETRAIN_UPDATES:-2000} seed=${SEED:-1} runs=${RUNS:-runs/fpt} data=${DATA:-}
size=${SIZE:-${from:+gpt2}}
size=${size:-tiny}

case $task in
    memory | xor | listops) ;;
    mnist | cifar10 | cifar10-gray) [[ -n $files ]] || die "FILES is not set: name the folder with the files of $task" ;;
    *) die "TASK='$task': name one of memory, xor, listops, mnist, cifar10, cifar10-gray" ;;
esac
[[ -z $files || -n $dry || -d $files ]] || die "FILES=$files: no such folder"
case $size in
    tiny) sizes=(--decoder-layers 2 --decoder-embed-dim 64 --decoder-ffn-embed-dim 128 --decoder-attention-heads 2 --activation-fn relu) ;;
    gpt2) sizes=() ;;
    gpt2-medium) sizes=(--decoder-layers 24 --decoder-embed-dim 1024 --decoder-ffn-embed-dim 4096 --decoder-attention-heads 16) ;;
    gpt2-large) sizes=(--decoder-layers 36 --decoder-embed-dim 1280 --decoder-ffn-embed-dim 5120 --decoder-attention-heads 20) ;;
    gpt2-xl) sizes=(--decoder-layers 48 --decoder-embed-dim 1600 --decoder-ffn-embed-dim 6400 --decoder-attention-heads 25) ;;
    *) die "SIZE='$size': name one of tiny, gpt2, gpt2-medium, gpt2-large, gpt2-xl" ;;
esac
# Components that are trained. The other ones are frozen.
case $arm in
    trained | trained-pretrained) kept= ;;
    frozen-pretrained | frozen-random) kept=ln,pos,emb,out ;;
    frozen-pretrained-ffn | frozen-random-ffn) kept=ln,pos,emb,out,ffn ;;
    frozen-pretrained-out | frozen-random-out) kept=out ;;
    frozen-pretrained-out-ln | frozen-random-out-ln) kept=out,ln ;;
    frozen-pretrained-out-ln-in | frozen-random-out-ln-in) kept=out,ln,emb ;;
    *) die "ARM='$arm': name one of trained, trained-pretrained, frozen-pretrained, frozen-random, or one of the last two with -out," \
        "-out-ln, -out-ln-in or -ffn" ;;
esac
start=()
if [[ $arm == *pretrained* && -n $from ]]; then
    [[ -n $dry || -f $from/config.json ]] || die "FROM=$from: config.json is missing"
    start=(--from-gpt2 "$from")
elif [[ $arm == *pretrained* ]]; then
    [[ $size == tiny ]] || die "SIZE='$size': a pretrained model of this size needs FROM"
    [[ -n $data ]] || die "DATA is not set: name the folder with train.txt, valid.txt and test.txt (or .gz), or set FROM"
    pretrained=$runs/pretrained-$pretraining-$seed bin=$runs/bin pieces=$runs/pieces
    binarise_text "$bin" "$pieces" python "$here/../quickstart/pieces.py" "$runs/text" txt txt 1000 "$pieces"
    fit "$bin" "$pretrained" --task language_modeling --tokens-per-sample 128 --sample-break-mode none --arch reservoir_transformer_lm_tiny \
        --decoder-learned-pos --no-scale-embedding --dropout 0 --optimizer adam --adam-betas '(0.9, 0.98)' --clip-norm 1.0 \
        --lr-scheduler polynomial_decay --lr 4e-3 --warmup-updates 100 --max-tokens 4096 --total-num-update "$pretraining" \
        --max-update "$pretraining" --no-epoch-checkpoints --num-workers 0 --log-format json --log-interval 100
    start=(--from-lm "$pretrained/checkpoint_best.pt")
fi

problem=(--user-dir "$here" --task fpt --problem "$task" ${files:+--files "$files"})
criterion=(--criterion label_smoothed_cross_entropy --label-smoothing 0 --report-accuracy)
out=$runs/$task/$arm-$size-$updates$(tag "$@")-$seed
for rate in $rates; do
    trained "$out/$rate" fairseq-train "${problem[@]}" --save-dir "$out/$rate" --seed "$seed" --arch frozen_fpt ${sizes[@]+"${sizes[@]}"} \
        ${kept:+--freeze-except "$kept"} ${start[@]+"${start[@]}"} "${criterion[@]}" --optimizer adam --lr "$rate" --clip-norm 1.0 \
        --batch-size 16 --max-update "$updates" --best-checkpoint-metric accuracy --maximize-best-checkpoint-metric \
        --no-epoch-checkpoints --num-workers 0 --log-format json --log-interval 100 "$@" ${device[@]+"${device[@]}"}
    shown "$out/$rate/test.log" fairseq-validate "${problem[@]}" "${criterion[@]}" --path "$out/$rate/checkpoint_best.pt" \
        --valid-subset test --batch-size 100 --log-format json
done
run python "$here/report.py" "$out"

#!/usr/bin/env bash
# FNet's own experiment: a masked language model that mixes tokens by Fourier transforms, fine-tuned on SST-2, and a BERT of the same
# width and depth. Prints the bits per masked piece of a test text and the accuracy on SST-2.
#   ARM=fnet        bert, fnet, fnet-bottom, fnet-middle, fnet-mixed, fnet-top, fnet-random, learned or ff-only; README.md explains them
#   DATA=FOLDER     the text: train.txt, valid.txt and test.txt, plain or .gz, also with a prefix, as in novel.train.txt
#   SST2=FOLDER     train.tsv and dev.tsv, plain or .gz; SPLIT as in ../one_layer_supermask/sst2.sh
#   SIZE=base       FNet-Base: width 768, 12 layers, 512 pieces per sample; study: width 128, 4 layers, 128 pieces
#   UPDATES=N       updates of pretraining (base: 1000000, study: 1500); 0: a classifier without pretraining, as a control
#   FINETUNE=N      updates of fine-tuning (base: 3157, three epochs of GLUE's SST-2; study: 450)
#   SEED=1          random seed
#   RUNS=FOLDER     output folder (default: runs/fnet)
#   DRY_RUN, GPUS, MINI   see ../common.sh; with SIZE=base, an update of pretraining has as many tokens as on four GPUs
# Arguments go to both trainings, as in: ARM=bert bash fnet.sh --fp16
# You can interrupt it and run it again: finished steps are kept.
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/../common.sh" fnet
. "$here/../text.sh"
. "$here/../classification.sh"
arm=${ARM:-fnet} size=${SIZE:-base} seed=${SEED:-1} runs=${RUNS:-runs/fnet} data=${DATA:-} sst2=${SST2:-${MINI:+$DATA}}
[[ -n $sst2 ]] || die "SST2 is not set: name the folder with train.tsv and dev.tsv (or .gz)"
there "$sst2/train.tsv" "$sst2/dev.tsv"
case $size in
    base)
        depth=12 length=512 vocabulary=32000 updates=${UPDATES:-1000000} finetune=${FINETUNE:-3157}
        pretraining=(--lr 1e-4 --warmup-updates 10000 --clip-norm 0 --max-tokens 8192 --update-freq "$(as_many_as 4)")
        tuning=(--lr 1e-5 --clip-norm 0 --batch-size 64) ;;
    study)
        depth=4 length=128 vocabulary=6000 updates=${UPDATES:-1500} finetune=${FINETUNE:-450}
        pretraining=(--lr 2e-3 --warmup-updates 150 --clip-norm 1 --max-tokens 2048)
        tuning=(--lr 1e-3 --clip-norm 1 --batch-size 128) ;;
    *) die "SIZE='$size': choose base or study" ;;
esac
[[ -z ${MINI:-} ]] || depth=4 vocabulary=300
top=2 rest=$((depth - 2)) half=$((depth / 2)) freeze=()
# FNet-Base's hybrids have two layers with attention, numbered as in FNet's code: the middle is layers 6 and 7 of 12.
case $arm in
    bert) plan=${depth}L ;;
    fnet) plan=${depth}M ;;
    fnet-bottom) plan=${top}L${rest}M ;;
    fnet-middle) plan=$((rest / 2))M${top}L$((rest - rest / 2))M ;;
    fnet-mixed) plan=L$((half - 1))ML$((half - 1))M ;;
    fnet-top) plan=${rest}M${top}L ;;
    fnet-random) plan=${depth}S freeze=(--freeze encoder.v,encoder.o) ;;
    learned) plan=${depth}s ;;
    ff-only) plan=${depth}f ;;
    *) die "ARM='$arm': name one of the arms in $here/README.md" ;;
esac
model=(--arch "$(preset reservoir_roberta "$size")" --reservoir-encoder "$plan" ${freeze[@]+"${freeze[@]}"})

pieces=$runs/pieces-$vocabulary bin=$runs/bin-$vocabulary phrases=$runs/bin-phrases-$vocabulary
name=$arm-$size-$updates$(tag "$@")-$seed
pretrained=$runs/pretrained-$name out=$runs/sst2-$name start=()
binarise_text "$bin" "$pieces" python "$here/../quickstart/pieces.py" "$runs/text" txt txt "$vocabulary" "$pieces"
binarise_phrases "$phrases" "$sst2" "$pieces/joint.model" "$runs/phrases-$vocabulary" "$bin/dict.txt"
if [[ $updates != 0 ]]; then
    masked=(--task masked_lm --criterion masked_lm)
    fit "$bin" "$pretrained" "${masked[@]}" "${model[@]}" --tokens-per-sample "$length" --sample-break-mode none \
        --dropout 0.1 --attention-dropout 0.1 --weight-decay 0.01 --optimizer adam --adam-betas '(0.9, 0.999)' --adam-eps 1e-6 \
        --lr-scheduler polynomial_decay --total-num-update "$updates" --max-update "$updates" --no-epoch-checkpoints \
        --save-interval-updates 500 --keep-interval-updates 1 --num-workers 0 --log-format json --log-interval 20 \
        "${pretraining[@]}" "$@"
    shown "$pretrained/test.log" fairseq-validate "$bin" --user-dir "$root/fairseq_reservoir" "${masked[@]}" --valid-subset test \
        --path "$pretrained/checkpoint_last.pt" --max-tokens 4096 --log-format json
    start=(--finetune-from-model "$pretrained/checkpoint_last.pt")
fi
classes 2
classification "$phrases" "$out" test "${model[@]}" ${start[@]+"${start[@]}"} --max-positions "$length" --shorten-method truncate \
    --dropout 0.1 --attention-dropout 0.1 --weight-decay 0.01 --adam-eps 1e-6 --warmup-updates $((finetune / 10)) \
    --total-num-update "$finetune" --max-update "$finetune" "${tuning[@]}" "$@"
[[ $updates == 0 ]] || run python "$here/../language_models/report.py" "$pretrained"
run python "$here/../one_layer_supermask/sst2_report.py" "$runs/phrases-$vocabulary/dev.label" "$out"

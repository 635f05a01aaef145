#!/usr/bin/env bash
# SST-2 from scratch with a RoBERTa: trains a classifier of sentiment, prints its accuracy beside the majority's share.
# Interrupt it and run it again: what is finished is kept, and training resumes after its last epoch.
#   DATA=FOLDER     train.tsv and dev.tsv, plain or .gz: a heading, then sentence<TAB>label
#   ARCH=supermask_one_layer_roberta_study   or reservoir_roberta_study, fairseq's roberta, ...
#   NAME=$ARCH      the run's folder below RUNS
#   SEED=1          random seed
#   PIECES=FILE     cut with this SentencePiece model instead of 6000 pieces of its own, for a model pretrained on those pieces
#   DICT=FILE       its dictionary, dict.txt of the data-bin folder; with PIECES
#   RUNS=FOLDER     where everything goes, instead of runs/sst2
#   DRY_RUN=1       print the commands, run none
# Arguments go to fairseq-train, as in: NAME=trained bash sst2.sh --mask-embeddings trained
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/../common.sh" sst2
arch=${ARCH:-supermask_one_layer_roberta_study} seed=${SEED:-1} runs=${RUNS:-runs/sst2}
data=${DATA:-} vocabulary=${PIECES:-6000} dict=${DICT:-} pieces=$runs/pieces bin=$runs/bin out=$runs/${NAME:-$arch}-$seed

[[ -n $data ]] || die "DATA is not set: name the folder with train.tsv and dev.tsv (or .gz)"
[[ ${PIECES:+given} == "${dict:+given}" ]] || die "PIECES='${PIECES:-}' DICT='$dict': give both or none"
there "$data/train.tsv" "$data/dev.tsv"

task=(--task sentence_prediction --criterion sentence_prediction --num-classes 2 --init-token 0 --separator-token 2)

if [[ ! -f $bin/label/dict.txt ]]; then
    run mkdir -p "$pieces"
    run python "$here/sst2_pieces.py" "$data" "$vocabulary" "$pieces"
    run rm -rf "$bin.part"
    for column in input0 label; do
        known=()
        [[ -z $dict || $column == label ]] || known=(--srcdict "$dict")
        run fairseq-preprocess --only-source "${known[@]}" --workers 1 --destdir "$bin.part/$column" \
            --trainpref "$pieces/train.$column" --validpref "$pieces/valid.$column" --testpref "$pieces/dev.$column"
    done
    run mv "$bin.part" "$bin"
fi

run mkdir -p "$out"
if [[ -n $dry || ! -f $out/trained || $(<"$out/trained") != "$*" ]]; then
    run rm -f "$out/validate.log" "$out/trained"
    logged "$out/train.log" fairseq-train "$bin" --user-dir "$root/fairseq_reservoir" --save-dir "$out" --seed "$seed" \
        --arch "$arch" "${task[@]}" --max-positions 32 --shorten-method truncate --dropout 0 --attention-dropout 0 \
        --optimizer adam --adam-betas '(0.9, 0.98)' --lr 2e-3 --lr-scheduler polynomial_decay --warmup-updates 100 \
        --total-num-update 450 --max-update 450 --clip-norm 1.0 --batch-size 128 \
        --best-checkpoint-metric accuracy --maximize-best-checkpoint-metric --no-epoch-checkpoints --num-workers 0 \
        --log-format json --log-interval 20 "$@"
    to "$out/trained" echo "$*"
fi

if [[ -n $dry || ! -f $out/validate.log ]]; then
    logged "$out/validate.log.part" fairseq-validate "$bin" --user-dir "$root/fairseq_reservoir" "${task[@]}" \
        --path "$out/checkpoint_best.pt" --valid-subset test --max-tokens 8192 --log-format json
    run mv "$out/validate.log.part" "$out/validate.log"
fi
run python "$here/sst2_report.py" "$pieces/dev.label" "$out"

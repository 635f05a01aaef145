#!/usr/bin/env bash
# Multi30k English-German with one model: trains, translates test_2016_flickr, prints sacreBLEU and the times.
#   NAME=FOLDER bash multi30k.sh --arch ARCH FLAGS-OF-FAIRSEQ-TRAIN...
# Interrupt it and run it again: what is finished is kept, and training resumes after its last epoch.
#   NAME=FOLDER     the run's folder below RUNS
#   DATA=FOLDER     raw text: train, val and test_2016_flickr, each .en and .de, plain or .gz
#   SEED=1          random seed
#   RUNS=FOLDER     where everything goes, instead of runs/multi30k
#   DRY_RUN=1       print the commands, run none
# The recipes of the studies next to this file call it.
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/common.sh" multi30k
name=${NAME:-} seed=${SEED:-1} runs=${RUNS:-runs/multi30k}
data=${DATA:-} text=$runs/text pieces=$runs/pieces bin=$runs/bin out=$runs/$name-$seed

[[ -n $name ]] || die "NAME is not set: name the folder of this run"
[[ -n $data ]] || die "DATA is not set: name the folder with train, val and test_2016_flickr in .en and .de (or .gz)"

if [[ ! -f $bin/test.en-de.de.idx ]]; then
    run mkdir -p "$text" "$pieces"
    for language in en de; do
        copy "$data/train.$language" "$text/train.$language"
        copy "$data/val.$language" "$text/valid.$language"
        copy "$data/test_2016_flickr.$language" "$text/test.$language"
    done
    run python "$here/quickstart/pieces.py" "$text" en de 6000 "$pieces"
    run rm -rf "$bin.part"
    run fairseq-preprocess --source-lang en --target-lang de --joined-dictionary --workers 2 --destdir "$bin.part" \
        --trainpref "$pieces/train" --validpref "$pieces/valid" --testpref "$pieces/test"
    run mv "$bin.part" "$bin"
fi

run mkdir -p "$out"
if [[ ! -f $out/trained || $(<"$out/trained") != "$*" ]]; then
    run rm -f "$out/generate.log" "$out/hypotheses" "$out/bleu.json"
    logged "$out/train.log" fairseq-train "$bin" --user-dir "$root/fairseq_reservoir" --save-dir "$out" --seed "$seed" \
        --share-all-embeddings --criterion label_smoothed_cross_entropy --label-smoothing 0.1 \
        --optimizer adam --adam-betas '(0.9, 0.98)' --max-tokens 4096 --no-epoch-checkpoints --num-workers 0 \
        --log-format json --log-interval 20 "$@"
    to "$out/trained" echo "$*"
fi

if [[ ! -f $out/bleu.json ]]; then
    to "$out/generate.log" fairseq-generate "$bin" --user-dir "$root/fairseq_reservoir" --path "$out/checkpoint_best.pt" \
        --beam 5 --remove-bpe sentencepiece --max-tokens 8192
    to "$out/hypotheses" python "$here/hypotheses.py" "$out/generate.log"
    to "$out/bleu.json" sacrebleu "$text/test.de" --input "$out/hypotheses" --metrics bleu --width 2
fi
run python "$here/summarise.py" "$out"

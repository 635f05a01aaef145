# Shared functions of the translation recipes. Source this file after common.sh and set `runs`, `data` and `seed`.

# cut_and_binarise BIN SOURCE TARGET PIECES FLAGS-OF-FAIRSEQ-PREPROCESS...: from the raw text of `data`, with Multi30k's file names.
# SentencePiece learns the pieces on both languages.
cut_and_binarise() {
    local bin=$1 source=$2 target=$3 size=$4 text=$runs/text pieces=$runs/pieces-$2-$3 language
    shift 4
    for language in "$source" "$target"; do
        copy "$data/train.$language" "$text/train.$language"
        copy "$data/val.$language" "$text/valid.$language"
        copy "$data/test_2016_flickr.$language" "$text/test.$language"
    done
    folder "$pieces" python "$root/examples/quickstart/pieces.py" "$text" "$source" "$target" "$size" "$pieces"
    folder "$bin" fairseq-preprocess --source-lang "$source" --target-lang "$target" --workers 2 --destdir "$bin" \
        --trainpref "$pieces/train" --validpref "$pieces/valid" --testpref "$pieces/test" "$@"
}

# prepared SOURCE TARGET SCRIPT FLAGS-OF-FAIRSEQ-PREPROCESS...: sets `bin`, the folder made by scripts/SCRIPT, or with MINI=1 a
# corpus of numbers; `decode`, flags of fairseq-generate; and `joined`, flags that make --eval-bleu count words, not pieces.
prepared() {
    local source=$1 target=$2 script=$3 pieces=
    shift 3
    bin=${BIN:-} decode=(--beam 5 --source-lang "$source" --target-lang "$target" --tokenizer moses --remove-bpe)
    if [[ -z $bin && -n ${MINI:-} ]]; then
        bin=$runs/bin-$source-$target data=$DATA
        cut_and_binarise "$bin" "$source" "$target" 300 "$@"
        pieces=sentencepiece
    fi
    [[ -n $bin ]] || die "BIN is not set: name the folder that scripts/$script made"
    [[ -n $dry || -f $bin/test.$source-$target.$target.idx ]] || die "BIN=$bin: test.$source-$target.$target.idx is missing"
    [[ ! -f $bin/sentencepiece.model ]] || pieces=sentencepiece
    decode+=(${pieces:+"$pieces"})
    joined=(--eval-bleu-remove-bpe ${pieces:+"$pieces"})
}

# average_last FOLDER N OUT: averages the checkpoints of the last N epochs of a training. If it had one epoch or less, its last
# checkpoint is copied.
average_last() {
    local checkpoints=("$1/checkpoint[0-9]*.pt")
    [[ -n $dry ]] || mapfile -t checkpoints < <(find "$1" -maxdepth 1 -name 'checkpoint[0-9]*.pt' ! -name '*_*' | sort -V | tail -n "$2")
    average_or_copy "$3" "$1/checkpoint_last.pt" "${checkpoints[@]}"
}

# average_best FOLDER OUT: averages the checkpoints that --keep-best-checkpoints has kept. A single one is copied.
average_best() {
    local checkpoints=("$1/checkpoint.best_*.pt")
    [[ -n $dry ]] || mapfile -t checkpoints < <(find "$1" -maxdepth 1 -name 'checkpoint.best_*.pt' | sort)
    average_or_copy "$2" "${checkpoints[0]:-$1/checkpoint_best.pt}" "${checkpoints[@]}"
}

# average_or_copy OUT OTHERWISE CHECKPOINTS...: averages several checkpoints. With one or none, OTHERWISE is copied.
average_or_copy() {
    local out=$1/checkpoint.pt otherwise=$2
    shift 2
    if [[ -n $dry || $# -gt 1 ]]; then run fairseq-reservoir average "$@" "$out"
    else run cp "$otherwise" "$out"; fi
}

# translation BIN FOLDER REFERENCE FLAGS-OF-FAIRSEQ-TRAIN...: trains, translates and scores a model.
# FOLDER keeps train.log, checkpoints, generate.log, hypotheses and bleu.json.
# REFERENCE is a file of raw text. "" means the test set of BIN, rebuilt by Moses' detokenizer. Such scores are not comparable
# with published sacreBLEU, because that text is not raw, and lower-cased for IWSLT14.
# The array `decode` holds flags of fairseq-generate. With `averaged` set to N, the mean of the last N epochs' checkpoints translates;
# with `averaged_best` set to N, the mean of the N checkpoints with the lowest loss; otherwise the best checkpoint.
translation() {
    local bin=$1 out=$2 reference=$3 epochs=(--no-epoch-checkpoints) model=$2/checkpoint_best.pt
    shift 3
    [[ -z ${averaged:-} ]] || epochs=(--keep-last-epochs "$averaged") model=$out/averaged/checkpoint.pt
    [[ -z ${averaged_best:-} ]] || epochs+=(--keep-best-checkpoints "$averaged_best") model=$out/averaged/checkpoint.pt
    fit "$bin" "$out" --criterion label_smoothed_cross_entropy --label-smoothing 0.1 --optimizer adam \
        --adam-betas '(0.9, 0.98)' --max-tokens 4096 "${epochs[@]}" --log-format json --log-interval 20 "$@"
    [[ -z ${averaged:-} ]] || folder "$out/averaged" average_last "$out" "$averaged" "$out/averaged"
    [[ -z ${averaged_best:-} ]] || folder "$out/averaged" average_best "$out" "$out/averaged"
    written "$out/generate.log" fairseq-generate "$bin" --user-dir "$root/fairseq_reservoir" --path "$model" \
        --max-tokens 8192 "${decode[@]}" ${MINI:+--max-len-b 20}
    written "$out/hypotheses" python "$root/examples/hypotheses.py" "$out/generate.log"
    if [[ -z $reference ]]; then
        reference=$out/references
        written "$reference" python "$root/examples/references.py" "$out/generate.log" "$target"
    fi
    written "$out/bleu.json" sacrebleu "$reference" --input "$out/hypotheses" --metrics bleu --width 2
    run python "$root/examples/summarise.py" "$out"
    [[ $reference != "$out/references" ]] ||
        run echo "This BLEU uses references rebuilt by Moses' detokenizer: not comparable with published sacreBLEU"
    run python "$root/examples/tokenised.py" "$out/generate.log"
}

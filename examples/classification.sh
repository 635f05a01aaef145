# What the recipes of classification share, sourced after common.sh. They set `seed`.

# classes N: sets `task`, flags of fairseq's sentence_prediction as scripts/prepare_glue.sh and sst2_pieces.py write the data.
classes() { task=(--task sentence_prediction --criterion sentence_prediction --num-classes "$1" --init-token 0 --separator-token 2); }

# binarise_phrases BIN DATA PIECES FOLDER [DICT]: train.tsv and dev.tsv of DATA, cut in FOLDER. PIECES and DICT are as sst2.sh explains.
binarise_phrases() {
    local bin=$1 data=$2 folder=$4 column known
    [[ ! -f $bin/label/dict.txt ]] || return 0
    run mkdir -p "$folder"
    run python "$root/examples/one_layer_supermask/sst2_pieces.py" "$data" "$3" "$folder"
    run rm -rf "$bin.part"
    for column in input0 label; do
        known=()
        [[ -z ${5:-} || $column == label ]] || known=(--srcdict "$5")
        run fairseq-preprocess --only-source ${known[@]+"${known[@]}"} --workers 1 --destdir "$bin.part/$column" \
            --trainpref "$folder/train.$column" --validpref "$folder/valid.$column" --testpref "$folder/dev.$column"
    done
    run mv "$bin.part" "$bin"
}

# classification BIN FOLDER SUBSET FLAGS-OF-FAIRSEQ-TRAIN...: trains a classifier and leaves its accuracy on SUBSET in validate.log.
classification() {
    local bin=$1 out=$2 subset=$3
    shift 3
    fit "$bin" "$out" validate.log "$*" "${task[@]}" --optimizer adam --adam-betas '(0.9, 0.98)' --lr-scheduler polynomial_decay \
        --best-checkpoint-metric accuracy --maximize-best-checkpoint-metric --no-epoch-checkpoints --num-workers 0 \
        --log-format json --log-interval 20 "$@"
    kept "$out/validate.log" fairseq-validate "$bin" --user-dir "$root/fairseq_reservoir" "${task[@]}" \
        --path "$out/checkpoint_best.pt" --valid-subset "$subset" --max-tokens 8192 --log-format json
}

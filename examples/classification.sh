# Shared functions of the classification recipes. Source this file after common.sh and set `seed`.

# classes N: sets `task`, flags of fairseq's sentence_prediction as scripts/prepare_glue.sh and sst2_pieces.py write the data.
classes() { task=(--task sentence_prediction --criterion sentence_prediction --num-classes "$1" --init-token 0 --separator-token 2); }

# binarise_phrases BIN DATA PIECES FOLDER [DICT]: binarises train.tsv and dev.tsv of DATA, cut into pieces in FOLDER. sst2.sh
# explains PIECES, DICT and SPLIT.
binarise_phrases() {
    # One folder per split, because a folder with files of both splits would be taken for the first one.
    local bin=$1 data=$2 vocabulary=$3 pieces=$4 split=$4-given-tsv part
    case ${SPLIT:-given} in
        given) for part in train dev; do copy "$data/$part.tsv" "$split/$part.tsv"; done ;;
        sentences) split=$pieces-tsv; folder "$split" python "$root/examples/one_layer_supermask/sst2_sentences.py" "$data" "$split" ;;
        *) die "SPLIT='$SPLIT': choose given or sentences" ;;
    esac
    folder "$pieces" python "$root/examples/one_layer_supermask/sst2_pieces.py" "$split" "$vocabulary" "$pieces"
    folder "$bin" binarise_columns "$bin" "$pieces" ${5:+"$5"}
}

# binarise_columns BIN FOLDER [DICT]
binarise_columns() {
    run fairseq-preprocess --only-source ${3:+--srcdict "$3"} --workers 1 --destdir "$1/input0" \
        --trainpref "$2/train.input0" --validpref "$2/valid.input0" --testpref "$2/dev.input0"
    run fairseq-preprocess --only-source --workers 1 --destdir "$1/label" \
        --trainpref "$2/train.label" --validpref "$2/valid.label" --testpref "$2/dev.label"
}

# classification BIN FOLDER SUBSET FLAGS-OF-FAIRSEQ-TRAIN...: trains a classifier and leaves its accuracy on SUBSET in validate.log.
classification() {
    local bin=$1 out=$2 subset=$3
    shift 3
    fit "$bin" "$out" "${task[@]}" --optimizer adam --adam-betas '(0.9, 0.98)' --lr-scheduler polynomial_decay \
        --best-checkpoint-metric accuracy --maximize-best-checkpoint-metric --no-epoch-checkpoints --num-workers 0 \
        --log-format json --log-interval 20 "$@"
    shown "$out/validate.log" fairseq-validate "$bin" --user-dir "$root/fairseq_reservoir" "${task[@]}" \
        --path "$out/checkpoint_best.pt" --valid-subset "$subset" --max-tokens 8192 --log-format json
}

#!/usr/bin/env bash
# SST-2 from scratch with a RoBERTa: trains a sentiment classifier and prints its accuracy and the share of the most frequent label.
# You can interrupt it and run it again: finished steps are kept, and training resumes after its last epoch.
#   DATA=FOLDER     folder with train.tsv and dev.tsv, plain or .gz: a heading, then lines sentence<TAB>label
#   SPLIT=given     sentences: split both files again by sentence, if dev was split off by phrase (see sst2_sentences.py)
#   ARCH=supermask_one_layer_roberta_study   or reservoir_roberta_study, fairseq's roberta, ...
#   NAME=$ARCH      the run's folder below RUNS; the default includes the arguments
#   SEED=1          random seed
#   PIECES=FILE     SentencePiece model of a pretrained model (default: learn 6000 new pieces)
#   DICT=FILE       dictionary of the same pretrained model: dict.txt in its data-bin folder; needed with PIECES
#   RUNS=FOLDER     output folder (default: runs/sst2)
#   DRY_RUN, GPUS, MINI   see ../common.sh
# Arguments go to fairseq-train, as in: bash sst2.sh --mask-embeddings trained
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/../common.sh" sst2
. "$here/../classification.sh"
arch=${ARCH:-supermask_one_layer_roberta_study} seed=${SEED:-1} runs=${RUNS:-runs/sst2}
data=${DATA:-} vocabulary=${PIECES:-6000} dict=${DICT:-} pieces=$runs/pieces bin=$runs/bin out=$runs/${NAME:-$arch$(tag "$@")}-$seed

[[ -n $data ]] || die "DATA is not set: name the folder with train.tsv and dev.tsv (or .gz)"
[[ ${PIECES:+given} == "${dict:+given}" ]] || die "PIECES='${PIECES:-}' DICT='$dict': give both or neither"
there "$data/train.tsv" "$data/dev.tsv"

classes 2
binarise_phrases "$bin" "$data" "$vocabulary" "$pieces" "$dict"
classification "$bin" "$out" test --arch "$arch" --max-positions 32 --shorten-method truncate --dropout 0 --attention-dropout 0 \
    --lr 2e-3 --warmup-updates 100 --total-num-update 450 --max-update 450 --clip-norm 1.0 --batch-size 128 "$@"
run python "$here/sst2_report.py" "$pieces/dev.label" "$out"

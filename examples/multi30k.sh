#!/usr/bin/env bash
# Multi30k English-German with one model: trains, translates test_2016_flickr, prints sacreBLEU and the times.
#   NAME=FOLDER bash multi30k.sh --arch ARCH FLAGS-OF-FAIRSEQ-TRAIN...
# You can interrupt it and run it again: finished steps are kept, and training resumes after its last epoch.
#   NAME=FOLDER     the run's folder below RUNS
#   DATA=FOLDER     raw text: train, val and test_2016_flickr, each .en and .de, plain or .gz
#   SEED=1          random seed
#   RUNS=FOLDER     output folder (default: runs/multi30k)
#   DRY_RUN, GPUS, MINI   see common.sh; the results in README files use one processor, as with GPUS=0 or 1
# The recipes of the studies next to this file call it.
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/common.sh" multi30k
. "$here/translation.sh"
name=${NAME:-} seed=${SEED:-1} runs=${RUNS:-runs/multi30k}
data=${DATA:-} bin=$runs/bin out=$runs/$name-$seed

[[ -n $name ]] || die "NAME is not set: name the folder of this run"
[[ -n $data ]] || die "DATA is not set: name the folder with train, val and test_2016_flickr in .en and .de (or .gz)"

cut_and_binarise "$bin" en de 6000 --joined-dictionary
decode=(--beam 5 --remove-bpe sentencepiece)
translation "$bin" "$out" "$runs/text/test.de" --share-all-embeddings --num-workers 0 "$@"

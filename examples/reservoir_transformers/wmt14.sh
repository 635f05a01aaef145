#!/usr/bin/env bash
# WMT English-German with a deep encoder, one decoder layer, and reservoirs; ../translation.sh lists the files of a run.
#   BIN=FOLDER      made by scripts/prepare_wmt14.sh; the paper used WMT16, prepared differently: see README.md
#   KIND=F          kind of the encoder's FROZEN reservoirs: T whole layers, F feed-forward, G GRU, C convolution; L: all layers are
#                   trained; drop: LayerDrop skips FROZEN layers on average
#   DEPTH=12        layers of the encoder, including reservoirs: the paper has 12, 16, 24, 32
#   FROZEN=4        number of reservoirs
#   DECODER_DEPTH=1, DECODER_FROZEN=0   layers of the decoder, and how many of them are reservoirs of the same kind
#   AVERAGE=5       the mean of so many checkpoints with the lowest loss translates; 0: the best checkpoint
#   SEED=1          random seed
#   RUNS=FOLDER     output folder (default: runs/wmt14)
#   DRY_RUN, GPUS, MINI   see ../common.sh; an update has at least as many tokens as on eight GPUs
#   sacreBLEU uses references rebuilt by Moses' detokenizer: not comparable with published sacreBLEU
# Arguments go to fairseq-train, as in: KIND=T bash wmt14.sh --fp16
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/../common.sh" wmt14
. "$here/../translation.sh"
stack=encoder kind=${KIND:-F} depth=${DEPTH:-12} frozen=${FROZEN:-4} seed=${SEED:-1} runs=${RUNS:-runs/wmt14}
. "$here/kinds.sh"
. "$here/decoder.sh"
target=de averaged_best=${AVERAGE:-5}
[[ $averaged_best != 0 ]] || averaged_best=
prepared en de prepare_wmt14.sh --joined-dictionary
translation "$bin" "$runs/$kind-$depth-$frozen$in_decoder$(tag "$@")-$seed" "" --arch "$(preset reservoir_transformer wmt_en_de_1dec)" --share-all-embeddings \
    "${model[@]}" --dropout 0.2 --lr 5e-4 --lr-scheduler inverse_sqrt --warmup-init-lr 1e-7 \
    --warmup-updates 4000 --update-freq "$(as_many_as 8)" --max-update 300000 --patience 10 "$@"

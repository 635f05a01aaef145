#!/usr/bin/env bash
# WMT English-German with a deep encoder, one decoder layer, and reservoirs; see ../translation.sh for what a run's folder keeps.
#   BIN=FOLDER      what scripts/prepare_wmt14.sh made; the paper's figures are of WMT16, prepared in another way: see README.md
#   KIND=F          L: all layers are trained; T or F: FROZEN of the encoder's are reservoirs; drop: LayerDrop leaves out as many
#   DEPTH=12        layers of the encoder, reservoirs among them: the paper has 12, 16, 24, 32
#   FROZEN=4        reservoirs
#   SEED=1          random seed
#   RUNS=FOLDER     where everything goes, instead of runs/wmt14
#   DRY_RUN, GPUS, MINI   see ../common.sh; an update sees at least what eight GPUs see at once
#   sacreBLEU is of references put together again by Moses' detokenizer, and not comparable with published sacreBLEU
# Arguments go to fairseq-train, as in: KIND=T bash wmt14.sh --fp16
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/../common.sh" wmt14
. "$here/../translation.sh"
stack=encoder kind=${KIND:-F} depth=${DEPTH:-12} frozen=${FROZEN:-4} seed=${SEED:-1} runs=${RUNS:-runs/wmt14}
. "$here/kinds.sh"
target=de
prepared en de prepare_wmt14.sh --joined-dictionary
translation "$bin" "$runs/$kind-$depth-$frozen-$seed" "" --arch "$(preset reservoir_transformer wmt_en_de_1dec)" --share-all-embeddings \
    "${model[@]}" --dropout 0.2 --lr 5e-4 --lr-scheduler inverse_sqrt --warmup-init-lr 1e-7 \
    --warmup-updates 4000 --update-freq "$(as_many_as 8)" --max-update 300000 --patience 10 "$@"

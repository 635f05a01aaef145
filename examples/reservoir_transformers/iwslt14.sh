#!/usr/bin/env bash
# IWSLT14 German-English with one depth and kind of reservoirs; ../translation.sh lists the files of a run.
#   BIN=FOLDER      made by scripts/prepare_iwslt14.sh
#   KIND=F          kind of the encoder's FROZEN reservoirs: T whole layers, F feed-forward, G GRU, C convolution; L: all layers are
#                   trained; drop: LayerDrop skips FROZEN layers on average
#   DEPTH=8         layers of the encoder, including reservoirs
#   FROZEN=2        number of reservoirs
#   DECODER_DEPTH=2, DECODER_FROZEN=0   layers of the decoder, and how many of them are reservoirs of the same kind
#   SEED=1          random seed
#   RUNS=FOLDER     output folder (default: runs/iwslt14)
#   DRY_RUN, GPUS, MINI   see ../common.sh; the paper trained on one GPU; more GPUs give more tokens per update
#   sacreBLEU uses lower-case references rebuilt by Moses' detokenizer: not comparable with published sacreBLEU
# Arguments go to fairseq-train, as in: KIND=T bash iwslt14.sh --fp16
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/../common.sh" iwslt14
. "$here/../translation.sh"
stack=encoder kind=${KIND:-F} depth=${DEPTH:-8} frozen=${FROZEN:-2} seed=${SEED:-1} runs=${RUNS:-runs/iwslt14}
. "$here/kinds.sh"
. "$here/decoder.sh"
target=en
prepared de en prepare_iwslt14.sh
translation "$bin" "$runs/$kind-$depth-$frozen$in_decoder$(tag "$@")-$seed" "" --arch "$(preset reservoir_transformer iwslt_de_en_2dec)" \
    "${model[@]}" --dropout 0.3 --weight-decay 1e-4 --lr 5e-4 --lr-scheduler inverse_sqrt \
    --warmup-updates 4000 --update-freq "$(as_many_as 1)" --max-epoch 60 --patience 10 --eval-bleu "${joined[@]}" \
    --eval-bleu-args '{"beam": 5, "max_len_a": 1.2, "max_len_b": 10}' --best-checkpoint-metric bleu \
    --maximize-best-checkpoint-metric "$@"

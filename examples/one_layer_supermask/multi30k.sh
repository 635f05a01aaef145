#!/usr/bin/env bash
# Multi30k English-German: a trained Transformer, and masks on one random layer; see ../multi30k.sh for more settings.
#   ARM=coats       dense   fairseq's transformer, all of it trained
#                   paper   the paper's model as its code trains it: Xavier's weights in attention and Kaiming's elsewhere, LayerNorms
#                           without gain and bias, masks of 0 and 1
#                   text    the same with Kaiming uniform weights everywhere, as the paper's text says: this model barely learns
#                   binary  random weights of fairseq's own sizes, trained LayerNorms, masks of 0 and 1: the plugin's defaults
#                   signed  the same with masks of -1, 0 and 1
#                   coats   the same with four nested signed masks, added up: entries -4 to 4
#   SIZE=study      study: width 128, feed-forward 512, 3 + 2 layers; wide: 256, 1024, 3 + 2; deep: 128, 512, 6 + 4; house: 256, 1024, 4 + 2
#   KEEP=0.5        share of the weights that masks keep; 0.8 with ARM=coats
#   INIT=...        other random weights, such as xavier_uniform or paper_code: see --mask-init-weights
#   VECTORS=PREFIX  embeddings of a trained model, PREFIX.en: fairseq-reservoir dump-embeddings CHECKPOINT PREFIX
#   NORM=after      after: LayerNorms after the blocks; before: LayerNorms before them
#   LR=2e-3         highest learning rate; other defaults with ARM=paper and in wide models
#   UPDATES=1400    updates, over which the learning rate falls to 0
#   DROPOUT=0.1     dropout
#   NAME=...        the run's folder, to which -SEED is added (default: made from the settings above and the arguments)
# Arguments go to fairseq-train, as in: bash multi30k.sh --activation-fn gelu
set -euo pipefail
examples=$(dirname "${BASH_SOURCE[0]}")/..
. "$examples/steps.sh"
arm=${ARM:-coats} size=${SIZE:-study} updates=${UPDATES:-1400} dropout=${DROPOUT:-0.1} norm=${NORM:-after}
keep=${KEEP:-} init=${INIT:-} vectors=${VECTORS:-}
die() { echo "multi30k: $*" >&2; exit 2; }
case $size in
    study) sizes=(128 512 3 2) rate=2e-3 ;;
    wide) sizes=(256 1024 3 2) rate=1e-3 ;;
    deep) sizes=(128 512 6 4) rate=2e-3 ;;
    house) sizes=(256 1024 4 2) rate=8e-4 ;;
    *) die "SIZE='$size': choose study, wide, deep or house" ;;
esac
masks=()
case $arm in
    dense) [[ $size != house ]] || rate=1e-3 ;;
    paper) init=${init:-paper_code} masks=(--mask-layernorm plain) rate=1e-3 ;;
    text) init=${init:-kaiming_uniform} masks=(--mask-layernorm plain) rate=1e-3 ;;
    binary) ;;
    signed) masks=(--mask-kind signed) ;;
    coats)
        nested=$(python3 -c "print(*(round(${keep:-0.8} * part, 4) for part in (0.625, 0.3125, 0.125)), sep=',')")
        masks=(--mask-kind signed --mask-keep-ratio "${keep:-0.8}" --mask-coats "$nested") ;;
    *) die "ARM='$arm': choose dense, paper, text, binary, signed or coats" ;;
esac
if [[ $arm == dense ]]; then
    [[ -z $keep$init$vectors ]] || die "ARM=dense: KEEP, INIT and VECTORS are for masks"
    model=(--arch transformer)
else
    model=(--arch supermask_one_layer_transformer ${masks[@]+"${masks[@]}"})
    [[ -z $keep || $arm == coats ]] || model+=(--mask-keep-ratio "$keep")
    [[ -z $init ]] || model+=(--mask-init-weights "$init")
    [[ -z $vectors || -n ${DRY_RUN:-} || -f $vectors.en ]] || die "VECTORS=$vectors: $vectors.en does not exist"
    [[ -z $vectors ]] || model+=(--encoder-embed-path "$vectors.en" --decoder-embed-path "$vectors.en")
fi
case $norm in
    after) ;;
    before) model+=(--encoder-normalize-before --decoder-normalize-before) ;;
    *) die "NORM='$norm': choose before or after" ;;
esac
name=$arm-$size-$updates-$dropout${keep:+-keep$keep}${INIT:+-$INIT}${vectors:+-vectors}${LR:+-$LR}
[[ $norm == after ]] || name=$name-before
NAME=${NAME:-$name$(tag "$@")} exec bash "$examples/multi30k.sh" "${model[@]}" \
    --encoder-embed-dim "${sizes[0]}" --encoder-ffn-embed-dim "${sizes[1]}" --encoder-layers "${sizes[2]}" --decoder-layers "${sizes[3]}" \
    --encoder-attention-heads 4 --decoder-attention-heads 4 --dropout "$dropout" --max-tokens 2048 --lr "${LR:-$rate}" \
    --lr-scheduler polynomial_decay --warmup-updates 200 --total-num-update "$updates" --max-update "$updates" "$@"

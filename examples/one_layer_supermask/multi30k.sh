#!/usr/bin/env bash
# Multi30k English-German: a trained Transformer, and masks on one random layer; see ../multi30k.sh for more.
#   ARM=coats       dense   fairseq's transformer, all of it trained
#                   paper   the paper's model: Kaiming uniform weights, LayerNorms without gain and bias, masks of 0 and 1
#                   binary  random weights of fairseq's own sizes, trained LayerNorms, masks of 0 and 1: the plugin's defaults
#                   signed  the same with masks of -1, 0 and 1
#                   coats   the same with four nested signed masks, added up: entries -4 to 4
#   SIZE=study      study: width 128, feed-forward 512, 3 + 2 layers; house: 256, 1024, 4 + 2
#   UPDATES=1400    updates, over which the learning rate falls to 0
#   DROPOUT=0.1     dropout
# Arguments go to fairseq-train, as in: bash multi30k.sh --lr 1e-3
set -euo pipefail
arm=${ARM:-coats} size=${SIZE:-study} updates=${UPDATES:-1400} dropout=${DROPOUT:-0.1}
die() { echo "multi30k: $*" >&2; exit 2; }
case $size in
    study) sizes=(128 512 3) rate=2e-3 ;;
    house) sizes=(256 1024 4) rate=8e-4 ;;
    *) die "SIZE=$size: study or house" ;;
esac
masked=(--arch supermask_one_layer_transformer)
signed=("${masked[@]}" --mask-kind signed)
case $arm in
    dense) model=(--arch transformer); [[ $size == study ]] || rate=1e-3 ;;
    paper) model=("${masked[@]}" --mask-init-weights kaiming_uniform --mask-layernorm plain) rate=1e-3 ;;
    binary) model=("${masked[@]}") ;;
    signed) model=("${signed[@]}") ;;
    coats) model=("${signed[@]}" --mask-keep-ratio 0.8 --mask-coats 0.5,0.25,0.1) ;;
    *) die "ARM=$arm: dense, paper, binary, signed or coats" ;;
esac
NAME=$arm-$size-$updates-$dropout exec bash "$(dirname "${BASH_SOURCE[0]}")/../multi30k.sh" "${model[@]}" \
    --encoder-embed-dim "${sizes[0]}" --encoder-ffn-embed-dim "${sizes[1]}" --encoder-layers "${sizes[2]}" --decoder-layers 2 \
    --encoder-attention-heads 4 --decoder-attention-heads 4 --dropout "$dropout" --max-tokens 2048 --lr "$rate" \
    --lr-scheduler polynomial_decay --warmup-updates 200 --total-num-update "$updates" --max-update "$updates" "$@"

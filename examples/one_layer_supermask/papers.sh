#!/usr/bin/env bash
# Masks on one random layer at the paper's sizes: trains, translates and scores one point of a figure, or one row of the paper's Table 1.
#   TASK=iwslt14    or wmt14
#   BIN=FOLDER      made by scripts/prepare_iwslt14.sh or scripts/prepare_wmt14.sh
#   SIZE=base       iwslt14: base, wide, deep; wmt14: base, wider, deeper
#   ARM=paper       paper: as the paper's code trains it, Xavier's weights in attention and Kaiming's elsewhere, plain LayerNorms
#                   text: Kaiming uniform weights everywhere, as the paper's text says; this model barely learns
#                   best: signed nested masks, trained LayerNorms; dense: everything is trained
#   KEEP=0.5        share of the weights that masks keep; 0.8 with ARM=best
#   INIT=...        other random weights, such as xavier_uniform: see --mask-init-weights
#   LAYERS=layer    layer: one random layer is used at all depths of a stack; none: each depth has its own
#   VECTORS=PREFIX  embeddings of a trained model, PREFIX.de and PREFIX.en: fairseq-reservoir dump-embeddings CHECKPOINT PREFIX
#   AVERAGE=10      wmt14: translate with the mean of the last N epochs' checkpoints, as Ott et al. (2018); 0: with the best checkpoint,
#                   as iwslt14 does
#   SEED=1          random seed
#   RUNS=FOLDER     output folder (default: runs/TASK-masks)
#   DRY_RUN, GPUS, MINI   see ../common.sh; an update has at least as many tokens as on one GPU, with wmt14 as on eight
#   sacreBLEU uses references rebuilt by Moses' detokenizer, with iwslt14 in lower case: not comparable with published sacreBLEU
# Arguments go to fairseq-train, as in: KEEP=0.1 bash papers.sh --fp16
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/../common.sh" papers
. "$here/../translation.sh"
work=${TASK:-iwslt14} size=${SIZE:-base} arm=${ARM:-paper} init=${INIT:-} layers=${LAYERS:-layer}
vectors=${VECTORS:-} seed=${SEED:-1} runs=${RUNS:-runs/$work-masks}
keep=0.5
[[ $arm != best ]] || keep=0.8
keep=${KEEP:-$keep}
case $work in
    iwslt14)
        source=de target=en gpus=1
        train=(--share-decoder-input-output-embed --lr 5e-4 --lr-scheduler inverse_sqrt --warmup-updates 4000 --dropout 0.3
            --weight-decay 1e-4 --clip-norm 0.5 --max-epoch 55 --eval-bleu
            --eval-bleu-args '{"beam": 5}' --best-checkpoint-metric bleu --maximize-best-checkpoint-metric)
        case $size in base) sizes=iwslt_de_en ;; wide | deep) sizes=${size}_iwslt_de_en ;; *) die "SIZE='$size': choose base, wide or deep" ;; esac
        prepared de en prepare_iwslt14.sh
        train+=("${joined[@]}") ;;
    wmt14)
        source=en target=de gpus=8 averaged=${AVERAGE:-10}
        [[ $averaged != 0 ]] || averaged=
        train=(--share-decoder-input-output-embed --lr 1e-3 --lr-scheduler inverse_sqrt --warmup-updates 4000 --warmup-init-lr 1e-7
            --dropout 0.2 --max-epoch 100)
        case $size in base) sizes=wmt_en_de ;; wider | deeper) sizes=${size}_wmt_en_de ;; *) die "SIZE='$size': choose base, wider or deeper" ;; esac
        prepared en de prepare_wmt14.sh --joined-dictionary ;;
    *) die "TASK='$work': choose iwslt14 or wmt14" ;;
esac
arch=$(preset supermask_one_layer_transformer "$sizes")
masks=(--mask-keep-ratio "$keep" --mask-share "$layers")
case $arm in
    paper) masks+=(--mask-init-weights "${init:-paper_code}" --mask-layernorm plain) ;;
    text) masks+=(--mask-init-weights "${init:-kaiming_uniform}" --mask-layernorm plain) ;;
    best)
        coats=$(python -c "print(*(round($keep * part, 4) for part in (0.625, 0.3125, 0.125)), sep=',')")
        masks+=(--mask-kind signed --mask-coats "$coats" --mask-init-weights "${init:-signed_fairseq}") ;;
    dense)
        masks=() keep=1
        case ${MINI:+mini-}$size in
            mini-*) arch=transformer_tiny ;;
            base) arch=transformer_$sizes ;;
            wide) arch=transformer_iwslt_de_en train+=(--encoder-embed-dim 1024 --encoder-ffn-embed-dim 2048 --decoder-embed-dim 1024 --decoder-ffn-embed-dim 2048) ;;
            wider) arch=transformer_wmt_en_de_big ;;
            *) arch=transformer_${sizes#*_} train+=(--encoder-layers 12 --decoder-layers 12) ;;
        esac ;;
    *) die "ARM='$arm': choose paper, text, best or dense" ;;
esac
if [[ -n $vectors ]]; then
    for language in $source $target; do [[ -n $dry || -f $vectors.$language ]] || die "VECTORS=$vectors: $vectors.$language does not exist"; done
    masks+=(--encoder-embed-path "$vectors.$source" --decoder-embed-path "$vectors.$target")
fi
name=$arm-$size-keep$keep${init:+-$init}${vectors:+-vectors}
[[ $layers == layer ]] || name=$name-$layers
name=$name$(tag "$@")
translation "$bin" "$runs/$name-$seed" "" --arch "$arch" ${masks[@]+"${masks[@]}"} "${train[@]}" --update-freq "$(as_many_as "$gpus")" "$@"

#!/usr/bin/env bash
# A row of "Not all parameters are born equal" on Multi30k; ../multi30k.sh lists the other settings.
#   ARM=2           a row of the paper's table; README.md explains the rows
#   FFN=512         width of the feed-forward blocks; 128 is the model's width, as in the paper's second table
#   UPDATES=700     updates, over which the learning rate falls to 0
# With BIN, the model has the paper's size and FFN=4096 (the default) or FFN=1024:
#   BIN=FOLDER      made by scripts/prepare_wmt18_tr_en.sh; SEED=1, RUNS=runs/frozen_components. sacreBLEU then uses references
#                   rebuilt by Moses' detokenizer: not comparable with published sacreBLEU
# Arguments go to fairseq-train, as in: ARM=2 bash run.sh --max-update 20
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/../common.sh" frozen_components
. "$here/rows.sh" "${ARM:-}"

if [[ -z ${BIN:-} ]]; then
    ffn=${FFN:-512} updates=${UPDATES:-700}
    NAME=frozen-$ARM-$ffn-$updates$(tag "$@") exec bash "$here/../multi30k.sh" --arch reservoir_transformer_study --encoder-ffn-embed-dim "$ffn" \
        ${spec[@]+"${spec[@]}"} --dropout 0.1 --max-tokens 2048 --lr 2e-3 --lr-scheduler polynomial_decay --warmup-updates 200 \
        --total-num-update "$updates" --max-update "$updates" "$@"
fi

. "$here/../translation.sh"
# Random parts have the paper's distribution, as in ../sweeps/wmt18_tr_en.yaml.
[[ ${#spec[@]} == 0 || " ${spec[*]} " == *" --frozen-init "* ]] || spec+=(--frozen-init glorot)
ffn=${FFN:-4096} seed=${SEED:-1} runs=${RUNS:-runs/frozen_components} target=en
prepared tr en prepare_wmt18_tr_en.sh
translation "$bin" "$runs/$ARM-$ffn$(tag "$@")-$seed" "" --arch frozen_transformer_wmt_en_de_big --share-all-embeddings \
    --encoder-ffn-embed-dim "$ffn" --decoder-ffn-embed-dim "$ffn" ${spec[@]+"${spec[@]}"} --dropout 0.1 --adam-betas '(0.9, 0.998)' \
    --adam-eps 1e-9 --lr 2e-4 --lr-scheduler inverse_sqrt --warmup-updates 8000 --patience 10 "$@"

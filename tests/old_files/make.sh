#!/usr/bin/env bash
# Makes the files in this folder, in a checkout of commit 3ee9a28 with its environment active:
#   bash make.sh FOLDER
# FOLDER must not exist. Each model is trained to update 30 and saved at update 24. That checkpoint is exported and translated.
set -euo pipefail
out=$1
mkdir "$out"
export OMP_NUM_THREADS=1
python -c "
from pathlib import Path
from tests.conftest import write_corpus
write_corpus(Path('$out/data'), train=160, valid=8, test=8)"

make() {  # name, flags of the model
    local name=$1
    shift
    fairseq-train "$out/data" --user-dir fairseq_reservoir "$@" --encoder-embed-dim 8 --encoder-ffn-embed-dim 12 \
        --encoder-attention-heads 2 --decoder-attention-heads 2 --share-decoder-input-output-embed --cpu --dropout 0.1 \
        --optimizer adam --lr 0.01 --batch-size 16 --max-update 30 --save-interval-updates 24 --no-epoch-checkpoints \
        --disable-validation --seed 3 --num-workers 0 --save-dir "$out/$name" >"$out/$name.log"
    local start=$out/$name/checkpoint_3_24.pt
    fairseq-reservoir export "$start" "$out/$name.safetensors"
    fairseq-generate "$out/data" --user-dir fairseq_reservoir --path "$start" --cpu --beam 3 --max-len-b 10 --num-workers 0 \
        2>>"$out/$name.log" | grep '^H-' | cut -f1,3 | sort >"$out/$name.txt"
    gzip -9nk "$out/$name.safetensors"
    gzip -9n <"$start" >"$out/$name.24.pt.gz"
    # Keep only the weights of update 30.
    python -c "
import gzip, safetensors.torch, torch, fairseq_reservoir
model = torch.load('$out/$name/checkpoint_last.pt', weights_only=True)['model']
tensors = {name: tensor.clone() for name, tensor in model.items()}
gzip.open('$out/$name.30.safetensors.gz', 'wb', 9).write(safetensors.torch.save(tensors))"
}

make reservoir --arch reservoir_transformer --reservoir-encoder LTFGCMSs --reservoir-decoder LTCSF \
    --freeze encoder.layers.0.ffn --frozen-init orthogonal
make l_and_t --arch reservoir_transformer --reservoir-encoder LT --reservoir-decoder T
make supermask --arch supermask_one_layer_transformer --encoder-layers 2 --decoder-layers 2 --mask-keep-ratio 0.3 --mask-kind signed

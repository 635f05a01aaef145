# Shared settings of the recipes in this folder. Source this file.
#   DATA=FOLDER      output folder of fairseq-preprocess, with the same path on every host
#   SAVE_DIR=FOLDER  folder for checkpoints; only rank 0 writes there, all hosts read it to resume
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
[[ ! -x $root/.venv/bin/fairseq-train ]] || export PATH="$root/.venv/bin:$PATH"
export OMP_WAIT_POLICY=${OMP_WAIT_POLICY-passive}  # the reason is in examples/steps.sh

need() { [[ -n ${!1:-} ]] || { echo "$(basename "$0"): $1 is not set: $2" >&2; exit 2; }; }
run() { if [[ -n ${DRY_RUN:-} ]]; then printf '%q ' "$@"; echo; else exec "$@"; fi; }

need DATA "name the folder that fairseq-preprocess wrote"

# The README's model. Batches are per rank: with N ranks an update has N times as many sentences.
training=(
    "$DATA" --user-dir "$root/fairseq_reservoir" --arch reservoir_transformer_study --reservoir-encoder LFLFL
    --share-all-embeddings --optimizer adam --lr 2e-3 --lr-scheduler inverse_sqrt --warmup-updates 400 --dropout 0.1
    --criterion label_smoothed_cross_entropy --label-smoothing 0.1 --max-tokens 4096 --max-update 1500
    --save-interval-updates 500 --keep-interval-updates 1 --no-epoch-checkpoints --save-dir "${SAVE_DIR:-checkpoints}"
)

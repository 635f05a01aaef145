# Shared settings and functions of the recipes. Source it with the name that begins their errors: . common.sh NAME
# All recipes have these settings:
#   DRY_RUN=1       print the commands without running them
#   GPUS=N          train on the first N GPUs, 0 for the CPU (default: all). Some recipes state the GPUs whose tokens an update
#                   has. They accumulate batches on fewer GPUs, and print a note if an update has more tokens. In all other
#                   recipes, an update on N GPUs has N times as many tokens as on one
#   MINI=1          a run of ten updates on numbers written as words, to test the recipe; writes into runs/mini/NAME
# It sets `root` (the repository), `dry` (not empty with DRY_RUN) and `device` (the last flags of each fairseq-train).
set -euo pipefail
recipe=$1 dry=${DRY_RUN:-} device=()
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
[[ ! -x $root/.venv/bin/fairseq-train ]] || export PATH="$root/.venv/bin:$PATH"
export PYTHONWARNINGS=ignore

say() { echo "$recipe: $*"; }
die() { say "$@" >&2; exit 2; }
. "$root/examples/steps.sh"
[[ -n $dry ]] || command -v fairseq-train >/dev/null || die "fairseq-train was not found: run bash scripts/setup.sh first"

for name in RUNS DATA BIN GLUE SST2; do  # a folder that begins with a dash is not a flag
    [[ ${!name:-} != -* ]] || printf -v "$name" '%s' "./${!name}"
    [[ $name != DATA && $name != SST2 ]] || continue  # raw text, which is copied
    case ${!name:-} in *[,:$'\n']*) die "$name=${!name}: fairseq splits it into several folders at a comma or colon; name another folder" ;; esac
done

case ${GPUS:-} in
    "") ;;
    0) device=(--cpu) ;;
    *[!0-9]*) die "GPUS='$GPUS': must be a number of GPUs, or 0 for the CPU" ;;
    *)
        all=${CUDA_VISIBLE_DEVICES:-$(seq -s , 0 $((GPUS - 1)))}
        CUDA_VISIBLE_DEVICES=$(cut -d , -f "1-$GPUS" <<<"$all")
        export CUDA_VISIBLE_DEVICES
        device=(--distributed-world-size "$GPUS") ;;
esac
# gpus: number of GPUs visible to fairseq-train
gpus() {
    if [[ -n ${GPUS:-} ]]; then
        echo "$GPUS"
    elif [[ -n ${CUDA_VISIBLE_DEVICES+set} ]]; then
        tr , '\n' <<<"$CUDA_VISIBLE_DEVICES" | grep -c '^[^-]' || true  # -1 is none
    else
        { nvidia-smi -L 2>/dev/null || true; } | grep -c '^GPU' || true
    fi
}

# as_many_as N: number of batches per GPU and update, for at least as many tokens as on N GPUs
as_many_as() {
    local gpus batches
    gpus=$(gpus)
    [[ $gpus != 0 ]] || gpus=1
    batches=$((($1 + gpus - 1) / gpus))
    [[ -n ${MINI:-} || $((batches * gpus)) == "$1" ]] ||
        echo "$recipe: note: GPUs: $gpus; an update has $((batches * gpus)) batches instead of $1" >&2
    echo "$batches"
}

# preset FAMILY SIZE: the architecture's name; with MINI=1, the smallest one of the family
preset() { echo "$1_${MINI:+tiny_}$2" | sed 's/_tiny_.*/_tiny/'; }

if [[ -n ${MINI:-} ]]; then
    RUNS=${RUNS:-runs/mini/$recipe} DATA=${DATA:-$RUNS/numbers}
    export RUNS DATA
    [[ $DATA != "$RUNS/numbers" ]] || folder "$DATA" python "$root/examples/mini_corpus.py" "$DATA"
    device=(${device[@]+"${device[@]}"} --max-update 10 --max-tokens 600 --update-freq 1)
fi

# fit BIN FOLDER FLAGS...: fairseq-train with the seed `seed`
fit() {
    local bin=$1 out=$2
    shift 2
    trained "$out" fairseq-train "$bin" --user-dir "$root/fairseq_reservoir" --save-dir "$out" --seed "$seed" \
        "$@" ${device[@]+"${device[@]}"}
}

# there FILE...: fails unless each file exists, plain or as FILE.gz
there() {
    local file
    [[ -z $dry || -z ${MINI:-} ]] || return 0  # the corpus of numbers, which a dry run does not write
    for file in "$@"; do [[ -f $file.gz || -f $file ]] || die "DATA=$data: neither $file nor $file.gz exists"; done
}

# copy FILE COPY: copies FILE, or unpacks FILE.gz
copy() {
    there "$1"
    if [[ -f $1.gz ]]; then written "$2" gzip -dc "$1.gz"; else written "$2" cat "$1"; fi
}

# What the recipes share; they source it with the name that their errors begin with: . common.sh NAME
# All take these settings:
#   DRY_RUN=1       print the commands, run none
#   GPUS=N          train on the first N GPUs, 0 for the CPU; all there are if left out. A recipe that names
#                   the GPUs of an update adds up batches on fewer, and says so where it sees more; with all others N GPUs see N
#                   times the tokens of one
#   MINI=1          a run of ten updates on numbers in words, to see that the recipe works; goes into runs/mini
# It sets `root`, the repository, `dry`, not empty with DRY_RUN, and `device`, flags that each fairseq-train gets last.
set -euo pipefail
recipe=$1 dry=${DRY_RUN:-} device=()
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
[[ ! -x $root/.venv/bin/fairseq-train ]] || export PATH="$root/.venv/bin:$PATH"
export PYTHONWARNINGS=ignore

die() { echo "$recipe: $*" >&2; exit 2; }
[[ -n $dry ]] || command -v fairseq-train >/dev/null || die "fairseq-train is not found: bash scripts/setup.sh first"

case ${GPUS:-} in
    "") ;;
    0) device=(--cpu) ;;
    *[!0-9]*) die "GPUS='$GPUS': a number of GPUs, or 0 for the CPU" ;;
    *)
        all=${CUDA_VISIBLE_DEVICES:-$(seq -s , 0 $((GPUS - 1)))}
        CUDA_VISIBLE_DEVICES=$(cut -d , -f "1-$GPUS" <<<"$all")
        export CUDA_VISIBLE_DEVICES
        device=(--distributed-world-size "$GPUS") ;;
esac
# gpus: how many fairseq-train will see
gpus() {
    if [[ -n ${GPUS:-} ]]; then
        echo "$GPUS"
    elif [[ -n ${CUDA_VISIBLE_DEVICES+set} ]]; then
        tr , '\n' <<<"$CUDA_VISIBLE_DEVICES" | grep -c '^[^-]' || true  # -1 is none
    else
        { nvidia-smi -L 2>/dev/null || true; } | grep -c '^GPU' || true
    fi
}

# as_many_as N: how many batches a GPU adds up before an update, for at least as many tokens in it as on N GPUs
as_many_as() {
    local gpus batches
    gpus=$(gpus)
    [[ $gpus != 0 ]] || gpus=1
    batches=$((($1 + gpus - 1) / gpus))
    [[ -n ${MINI:-} || $((batches * gpus)) == "$1" ]] ||
        echo "$recipe: note: GPUs: $gpus; an update sees $((batches * gpus)) batches in place of $1" >&2
    echo "$batches"
}

# preset FAMILY SIZE: the architecture's name; with MINI=1 its smallest
preset() { echo "$1_${MINI:+tiny_}$2" | sed 's/_tiny_.*/_tiny/'; }

# run COMMAND...
run() { if [[ -n $dry ]]; then printf '%q ' "$@"; echo; else "$@"; fi; }

if [[ -n ${MINI:-} ]]; then
    RUNS=${RUNS:-runs/mini} DATA=${DATA:-$RUNS/numbers}
    [[ $DATA != "$RUNS/numbers" ]] || run python "$root/examples/mini_corpus.py" "$DATA"
    device=(${device[@]+"${device[@]}"} --max-update 10 --max-tokens 600 --update-freq 1)
fi

# to FILE COMMAND...: its standard output, in a file that is whole or not there
to() {
    local file=$1
    shift
    if [[ -n $dry ]]; then printf '%q ' "$@"; printf '> %q\n' "$file"; else "$@" >"$file.part"; mv "$file.part" "$file"; fi
}

# logged FILE COMMAND...: all it says, shown and appended
logged() {
    local file=$1
    shift
    if [[ -n $dry ]]; then printf '%q ' "$@"; printf '2>&1 | tee -a %q\n' "$file"; else "$@" 2>&1 | tee -a "$file"; fi
}

# kept FILE COMMAND...: all it says, shown and left in FILE, unless that is there
kept() {
    local file=$1
    shift
    if [[ -n $dry || ! -f $file ]]; then
        logged "$file.part" "$@"
        run mv "$file.part" "$file"
    fi
}

# fit BIN FOLDER STALE ASKED FLAGS...: fairseq-train with the seed `seed`, unless FOLDER/trained says that this was done with what was
# ASKED. STALE names the files in FOLDER that came of an earlier model, with spaces between them.
fit() {
    local bin=$1 out=$2 stale asked=$4
    read -ra stale <<<"$3"
    shift 4
    run mkdir -p "$out"
    if [[ -n $dry || ! -f $out/trained || $(<"$out/trained") != "$asked" ]]; then
        run rm -f "${stale[@]/#/$out/}" "$out/trained"
        logged "$out/train.log" fairseq-train "$bin" --user-dir "$root/fairseq_reservoir" --save-dir "$out" --seed "$seed" \
            "$@" ${device[@]+"${device[@]}"}
        to "$out/trained" echo "$asked"
    fi
}

# there FILE...: each of them is there, plain or as FILE.gz
there() {
    local file
    [[ -z $dry || -z ${MINI:-} ]] || return 0  # the numbers in words that are not written
    for file in "$@"; do [[ -f $file.gz || -f $file ]] || die "DATA=$data: $file does not exist, nor $file.gz"; done
}

# copy FILE COPY: of FILE.gz, unpacked, or of FILE
copy() {
    there "$1"
    if [[ -f $1.gz ]]; then to "$2" gzip -dc "$1.gz"; else to "$2" cat "$1"; fi
}

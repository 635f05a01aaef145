# What the recipes share; they source it with the name that their errors begin with: . common.sh NAME
# It sets `root`, the repository, and `dry`, not empty when DRY_RUN asks to print commands and run none.
set -euo pipefail
recipe=$1 dry=${DRY_RUN:-}
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
[[ ! -x $root/.venv/bin/fairseq-train ]] || export PATH="$root/.venv/bin:$PATH"
export PYTHONWARNINGS=ignore

die() { echo "$recipe: $*" >&2; exit 2; }
[[ -n $dry ]] || command -v fairseq-train >/dev/null || die "fairseq-train is not found: bash scripts/setup.sh first"

# run COMMAND...
run() { if [[ -n $dry ]]; then printf '%q ' "$@"; echo; else "$@"; fi; }

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

# there FILE...: each of them is there, plain or as FILE.gz
there() {
    local file
    for file in "$@"; do [[ -f $file.gz || -f $file ]] || die "DATA=$data: $file does not exist, nor $file.gz"; done
}

# copy FILE COPY: of FILE.gz, unpacked, or of FILE
copy() {
    there "$1"
    if [[ -f $1.gz ]]; then to "$2" gzip -dc "$1.gz"; else to "$2" cat "$1"; fi
}

# Sourced by scripts/prepare_*.sh as `launch.sh NAME ARGUMENTS...`. Runs prepare/NAME.py, with this clone's .venv if it exists.
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
[[ ! -x $root/.venv/bin/fairseq-preprocess ]] || PATH="$root/.venv/bin:$PATH"
if ! command -v fairseq-preprocess >/dev/null; then
    echo "prepare_$1: fairseq-preprocess was not found: run bash scripts/setup.sh first" >&2
    exit 2
fi
export PYTHONPATH="$root/scripts${PYTHONPATH:+:$PYTHONPATH}" PYTHONWARNINGS=ignore
exec python -m "prepare.$1" "${@:2}"

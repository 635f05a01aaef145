#!/usr/bin/env bash
# Sets up .venv if needed, checks style and types, and runs the tests offline. --all includes slow tests. Other arguments are passed to
# pytest, and then only the tests run. --gpu must be the first argument. It runs tests/gpu with the active python3, which must have pytest,
# and installs nothing. VENV=.venv-NAME works as in scripts/setup.sh.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
if [[ ${1-} == --gpu ]]; then
    # Several processes, each with a thread per core, would take turns.
    export PYTHONHASHSEED=0 OMP_NUM_THREADS="${OMP_NUM_THREADS:-2}"
    exec python3 -m pytest -q -rsfE -m "" tests/gpu "${@:2}"
fi
bash scripts/setup.sh
venv=${VENV:-.venv}

selection=(-m "not slow")
arguments=()
for argument in "$@"; do
    if [[ $argument == --all ]]; then selection=(-m ""); else arguments+=("$argument"); fi
done

# Stops at the first failed check, because the checks take seconds and the tests minutes.
check() {
    local name=$1
    shift
    if [[ ! -x $venv/bin/$1 ]]; then echo "$name: skipped, $1 is not installed (extra dev)"; return; fi
    echo "$name: $*"
    $venv/bin/"$@" || { echo "$name: failed; the tests did not run" >&2; exit 1; }
}
if [[ ${#arguments[@]} == 0 ]]; then
    check lint ruff check .
    check format ruff format --check .
    check types mypy
fi

# One thread and fixed seeds give the same sums in the same order. Three processes on two cores, because one is often waiting.
export OMP_NUM_THREADS=1 PYTHONHASHSEED=0 PIP_NO_INDEX=1
exec $venv/bin/python -m pytest -q -n 3 --dist worksteal --hypothesis-seed=0 "${selection[@]}" ${arguments[@]+"${arguments[@]}"}

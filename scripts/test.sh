#!/usr/bin/env bash
# Sets up if needed, checks style and types, then runs the tests, offline. --all runs the slow ones too; any other argument goes
# to pytest, and then the tests are all that runs. --gpu comes first and runs tests/gpu with the python3 that is active, as on a
# machine that nothing can be installed on: it sets nothing up, and needs pytest there. VENV=.venv-NAME: as for scripts/setup.sh.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
if [[ ${1-} == --gpu ]]; then
    export PYTHONHASHSEED=0
    exec python3 -m pytest -q -rsfE -m "" tests/gpu "${@:2}"
fi
bash scripts/setup.sh
venv=${VENV:-.venv}

selection=(-m "not slow")
arguments=()
for argument in "$@"; do
    if [[ $argument == --all ]]; then selection=(-m ""); else arguments+=("$argument"); fi
done

# Stops at the first one that finds something, and says which: the tests take minutes, these take seconds.
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

# One thread each and fixed seeds: the same sums in the same order. Three processes on two cores, since one or another is always waiting.
export OMP_NUM_THREADS=1 PYTHONHASHSEED=0 PIP_NO_INDEX=1
exec $venv/bin/python -m pytest -q -n 3 --dist worksteal --hypothesis-seed=0 "${selection[@]}" ${arguments[@]+"${arguments[@]}"}

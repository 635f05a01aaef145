#!/usr/bin/env bash
# Sets up if needed, then runs the tests, offline. --all runs the slow ones too; any other argument goes to pytest.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
bash scripts/setup.sh

selection=(-m "not slow")
arguments=()
for argument in "$@"; do
    if [[ $argument == --all ]]; then selection=(-m ""); else arguments+=("$argument"); fi
done

# One thread each and fixed seeds: the same sums in the same order, and two processes do not fight over two cores.
export OMP_NUM_THREADS=1 PYTHONHASHSEED=0 PIP_NO_INDEX=1
exec .venv/bin/python -m pytest -q -n 2 --hypothesis-seed=0 "${selection[@]}" ${arguments[@]+"${arguments[@]}"}

"""List of faults for ``scripts/mutate.py``: each can be made in today's code. The script itself runs with ``--all``."""

import runpy
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MUTATE = ROOT / "scripts" / "mutate.py"
MUTATIONS = runpy.run_path(str(MUTATE))["mutations"]()


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: f"{mutation.path}: {mutation.old}")
def test_each_fault_can_be_made(mutation):
    source = (ROOT / mutation.path).read_text()
    assert source.count(mutation.old) == 1
    compile(source.replace(mutation.old, mutation.new), mutation.path, "exec")
    assert mutation.tests and all((ROOT / "tests" / path).exists() for path in mutation.tests)


@pytest.mark.slow
def test_a_fault_is_found():
    run = subprocess.run([sys.executable, MUTATE, "--from", "1", "--to", "1"], capture_output=True, text=True)
    assert (run.returncode, run.stdout.split()[:2]) == (0, ["found", "1"])

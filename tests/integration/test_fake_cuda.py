"""Every model trains on a CUDA device without mixing devices, and the host waits for it no more often than with plain fairseq.

The device is a simulation (tests/support/fake_cuda, docs/gpu.md): shapes, types and devices are real, numbers are not. Each group of
trainings runs in a process of its own, since autograd asks for devices once, when it first runs.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.fake_cuda import library

ROOT = Path(__file__).parents[2]
GROUPS = ("layers", "masks", "models")

pytestmark = pytest.mark.skipif(bool(library.why_not()), reason=str(library.why_not()))


def run(group, cache, folder):
    """What ``compare.found`` says of a group."""
    answer = folder / "found.json"
    flags = ["--group", group, "--json", answer, "--library", cache.mkdir("fake_cuda")]
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.fake_cuda", *map(str, flags)], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(answer.read_text())


@pytest.mark.parametrize("group", GROUPS)
def test_nothing_waits_and_nothing_is_left_on_the_cpu(group, pytestconfig, tmp_path):
    results = run(group, pytestconfig.cache, tmp_path)
    problems = [f"{result['name']}: {problem}" for result in results for problem in result["problems"]]
    assert results and not problems, "\n".join(problems)
    # fairseq reads a loss and a norm at least: a count of 0 would be no count.
    assert all(theirs and ours is not None and ours <= theirs for ours, theirs in (r["reads"] for r in results))


def test_planted_mistakes_are_caught(pytestconfig, tmp_path):
    results = run("planted", pytestconfig.cache, tmp_path)
    assert len(results) == 5
    for result in results:
        said = "\n".join(result["problems"])
        assert result["seen"] in said, f"{result['name']}: {said or 'not seen'}"
        assert "planted.py" in said or "device" in said, said

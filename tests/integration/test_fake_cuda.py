"""Every model trains on a CUDA device without mixing devices, and synchronises no more often than plain fairseq.

The device is simulated (tests/support/fake_cuda, docs/gpu.md): shapes, dtypes and devices are real, values are not. All trainings
run in one process, because its start takes most of the time. It is a new process, because autograd queries devices only once.

By default every kind of layer is in a training in float32, and one training has masks, rounded matrices, an adapter, ``--backskip``,
``--cuda-graphs``, each precision and each task. The slow test has the rest (``cases``, group ``further``): every kind of layer in the
other precisions, the other masks, numbers of levels, adapters, estimators and models, and options one at a time. There fairseq's model
has the same depth as ours; by default the reads of a deep one are extrapolated from one and two layers.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.fake_cuda import library

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.skipif(bool(library.why_not()), reason=str(library.why_not()))


def run(groups, cache, folder, *flags):
    """Results of ``compare.found`` for groups of trainings."""
    answer = folder / "found.json"
    flags = [*flags, *(word for group in groups for word in ("--group", group))]
    flags += ["--json", answer, "--library", cache.mkdir("fake_cuda")]
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.fake_cuda", *map(str, flags)], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(answer.read_text())


def check(results):
    problems = [f"{result['name']}: {problem}" for result in results for problem in result["problems"]]
    assert results and not problems, "\n".join(problems)
    # fairseq reads at least a loss and a norm, so a count of 0 would mean that counting fails.
    assert all(theirs and ours is not None and ours <= theirs for ours, theirs in (r["reads"] for r in results))


def test_only_planted_mistakes_synchronise_or_leave_tensors_on_the_cpu(pytestconfig, tmp_path):
    results = run(["layers", "masks", "models", "graphs", "planted"], pytestconfig.cache, tmp_path)
    check([result for result in results if not result["seen"]])
    planted = [result for result in results if result["seen"]]
    assert len(planted) == 7
    for result in planted:
        said = "\n".join(result["problems"])
        assert result["seen"] in said, f"{result['name']}: {said or 'not seen'}"
        assert "planted.py" in said or "device" in said or "recording" in result["name"], said


@pytest.mark.slow
def test_the_other_pairs_of_a_choice_and_a_precision(pytestconfig, tmp_path):
    check(run(["further"], pytestconfig.cache, tmp_path, "--exact"))

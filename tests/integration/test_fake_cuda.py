"""Every model trains on a CUDA device without mixing devices, and the host waits for it no more often than with plain fairseq.

The device is a simulation (tests/support/fake_cuda, docs/gpu.md): shapes, types and devices are real, numbers are not. All trainings run
in one process, since most of the time goes into its start; it is not this one, since autograd asks for devices once, when it first runs.

By default each kind of layer, each model, each choice of masks, adapter, estimator of ``--backskip`` and each precision is in some
training, and every kind of layer is in float32, --fp16, --bf16 and --amp. ``--mask-trained-weights`` are sign, ternary, an odd and an
even number of levels. The slow test has what is left (``cases``, the group ``further``): the other numbers; masks, adapters, estimators and
models in their other precisions, and by themselves what a training above has two of. There fairseq's model has the same depth as ours;
by default what a deep one reads is calculated from one layer and two.
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
    """What ``compare.found`` says of groups of trainings."""
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
    # fairseq reads a loss and a norm at least: a count of 0 would be no count.
    assert all(theirs and ours is not None and ours <= theirs for ours, theirs in (r["reads"] for r in results))


def test_nothing_waits_and_nothing_is_left_on_the_cpu_but_what_is_planted(pytestconfig, tmp_path):
    results = run(["layers", "masks", "models", "planted"], pytestconfig.cache, tmp_path)
    check([result for result in results if not result["seen"]])
    planted = [result for result in results if result["seen"]]
    assert len(planted) == 6
    for result in planted:
        said = "\n".join(result["problems"])
        assert result["seen"] in said, f"{result['name']}: {said or 'not seen'}"
        assert "planted.py" in said or "device" in said, said


@pytest.mark.slow
def test_the_other_pairs_of_a_choice_and_a_precision(pytestconfig, tmp_path):
    check(run(["further"], pytestconfig.cache, tmp_path, "--exact"))

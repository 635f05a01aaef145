"""benchmarks/masked_linear.py with a tiny layer."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from benchmarks import masked_linear

SHAPE = "--pairs 2 --warm-up 0 --in-features 6 --out-features 8 --tokens 5 --threads 1".split()


@pytest.mark.parametrize("dtype", masked_linear.TYPES.values())
@pytest.mark.parametrize("layer", masked_linear.LAYERS)
def test_a_step_gives_all_gradients(layer, dtype):
    arm = masked_linear.Arm(layer, dtype, masked_linear.read_arguments(SHAPE))
    assert arm.step() > 0 and arm.x.grad.any() and arm.x.grad.dtype == dtype
    assert [p.shape for p in arm.layer.parameters() if p.grad.any()] == [torch.Size([8, 6])]


def test_the_masked_layer_selects_in_every_step(monkeypatch):
    arm, calls = masked_linear.Arm("MaskedLinear", torch.float32, masked_linear.read_arguments(SHAPE)), []
    from fairseq_reservoir.masks import selection

    select = selection.select_largest
    monkeypatch.setattr(selection, "select_largest", lambda *a: calls.append(1) or select(*a))
    for _ in range(3):
        arm.step()
    assert len(calls) == 3


@pytest.mark.slow
def test_a_run(tmp_path):
    command = [sys.executable, Path(masked_linear.__file__), *SHAPE, "--output", tmp_path / "times"]
    ended = subprocess.run(command, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    result = json.loads((tmp_path / "times.json").read_text())
    for name in ("fp32", "bf16"):
        assert [arm["arm"] for arm in result[name]] == ["nn.Linear", "MaskedLinear", "a sort in every forward"]
        assert all(len(arm["ratios"]) == 2 for arm in result[name][1:])
    assert (tmp_path / "times.md").read_text() == ended.stdout

"""benchmarks/step_time.py: its arithmetic by hand, and one run on a tiny shape."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import step_time

SCRIPT = Path(step_time.__file__)


def test_ratio_is_the_median_of_the_ratios_pair_by_pair():
    # 3/2 = 1.5, 2/4 = 0.5, 10/10 = 1; the ratio of the medians, 3/4, is another number.
    result = step_time.compare([2.0, 4.0, 10.0], [3.0, 2.0, 10.0])
    assert result["ratios"] == [1.5, 0.5, 1.0]
    assert result["ratio"] == 1.0


def test_interval_of_two_pairs():
    # Two draws of 1 and 3 have the median 1, 2, 2 or 3, each with probability 1/4 > 2.5 %.
    result = step_time.compare([1.0, 1.0], [1.0, 3.0])
    assert (result["low"], result["ratio"], result["high"]) == (1.0, 2.0, 3.0)


def test_one_slow_step_in_forty_does_not_move_the_interval():
    result = step_time.compare([1.0] * 40, [1.0] * 39 + [50.0])
    assert (result["low"], result["ratio"], result["high"]) == (1.0, 1.0, 1.0)


def test_pairs_alternate_their_order():
    run = []

    def step(name, seconds):
        return lambda: run.append(name) or seconds

    assert step_time.time_pairs(step("A", 1.0), step("B", 2.0), 3) == ([1.0] * 3, [2.0] * 3)
    assert run == list("ABBAAB")


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["--arm", "no flags"], "--arm"),
        (["--arm", "A: --arch transformer"], "two or more"),
        (["--pairs", "0"], "--pairs 0: at least 1"),
        (["--promise", "X"], "--promise X: choose from only L"),
    ],
)
def test_wrong_arguments_are_named(arguments, message, capsys):
    with pytest.raises(SystemExit, match="2"):
        step_time.read_arguments(arguments)
    assert message in capsys.readouterr().err


def test_a_run_on_a_tiny_shape(tmp_path):
    sizes = "--encoder-embed-dim 8 --encoder-ffn-embed-dim 12 --encoder-attention-heads 2 --decoder-attention-heads 2"
    plan = f"--arch reservoir_transformer {sizes} --reservoir-decoder L --reservoir-encoder"
    arms = [
        f"plain: --arch transformer {sizes} --encoder-layers 2 --decoder-layers 1",
        f"only L: {plan} LL",
        f"T: {plan} LT",
    ]
    shape = "--pairs 2 --warm-up 0 --max-tokens 20 --length 5 --words 20 --threads 1".split()
    words = [word for arm in arms for word in ("--arm", arm)]
    command = [sys.executable, SCRIPT, *words, *shape, "--output", tmp_path / "times"]
    ended = subprocess.run(command, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr

    result = json.loads((tmp_path / "times.json").read_text())
    plain, only_l, reservoir = result["arms"]
    assert [arm["arm"] for arm in result["arms"]] == ["plain", "only L", "T"]
    assert only_l["flops"] == plain["flops"] and only_l["parameters"] == plain["parameters"]
    # The frozen layer saves its weight gradients: 2 FLOPs x 20 tokens x (4 attention matrices of 8 x 8, two of 8 x 12).
    assert plain["flops"] - reservoir["flops"] == 2 * 20 * (4 * 8 * 8 + 2 * 8 * 12)
    # Those matrices, their biases and two LayerNorms are not trained.
    assert reservoir["parameters"] - reservoir["trained"] == 4 * (64 + 8) + 2 * 96 + 12 + 8 + 2 * 16
    assert all(len(arm["ratios"]) == 2 and arm["low"] <= arm["ratio"] <= arm["high"] for arm in (only_l, reservoir))
    assert all(arm["seconds"] > 0 for arm in result["arms"])
    assert (tmp_path / "times.md").read_text() == ended.stdout
    assert ended.stdout.count("\n| ") == 3

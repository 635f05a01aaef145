"""benchmarks/step_profile.py: kinds and shares by hand, and one run with tiny models."""

import json

import pytest

from benchmarks import step_profile


@pytest.mark.parametrize(
    "name, kind",
    [
        ("aten::addmm", "matrix products"),
        ("aten::bmm", "matrix products"),
        ("aten::native_dropout", "dropout"),
        ("aten::bernoulli_", "dropout"),
        ("_FastDropout", "dropout"),
        ("_LabelSmoothingBackward", "loss"),
        ("aten::_log_softmax", "loss"),
        ("aten::_softmax", "softmax of attention"),
        ("aten::native_layer_norm_backward", "LayerNorm"),
        ("Optimizer.step#Adam.step", "optimizer"),
        ("aten::copy_", "other operations"),
    ],
)
def test_kinds(name, kind):
    assert step_profile.kind_of(name) == kind


def test_shares_by_hand():
    events = [("aten::mm", 2.0), ("aten::bmm", 1.0), ("aten::native_dropout", 3.0), ("aten::copy_", 1.0)]
    expected = {"matrix products": 0.3, "dropout": 0.3, "outside torch": 0.3, "other operations": 0.1}
    assert step_profile.shares(events, 10.0) == pytest.approx(expected)


def test_a_run_on_a_tiny_shape(tmp_path, capsys):
    sizes = "--encoder-embed-dim 8 --encoder-ffn-embed-dim 12 --encoder-attention-heads 2 --decoder-attention-heads 2 --decoder-layers 1"
    plan = f"--arch reservoir_transformer {sizes} --reservoir-encoder LT"
    arms = [
        "--arm",
        f"T: {plan}",
        "--arm",
        f"T, fast: {plan} --reservoir-fast-dropout --criterion fused_label_smoothed_cross_entropy",
    ]
    shape = "--steps 2 --warm-up 1 --max-tokens 40 --length 5 --words 20 --threads 1".split()
    step_profile.main([*arms, *shape, "--output", str(tmp_path / "profile")])
    written = json.loads((tmp_path / "profile.json").read_text())
    for arm in written["arms"].values():
        assert sum(arm["shares"].values()) == pytest.approx(1, abs=1e-6)
        assert {"matrix products", "dropout", "loss", "LayerNorm", "outside torch"} <= set(arm["shares"])
    printed = capsys.readouterr().out
    assert printed == (tmp_path / "profile.md").read_text() and printed.startswith("| share of a step | T | T, fast |")


def test_wrong_arguments_are_named(capsys):
    with pytest.raises(SystemExit, match="2"):
        step_profile.read_arguments(["--steps", "0"])
    assert "--steps 0: at least 1" in capsys.readouterr().err

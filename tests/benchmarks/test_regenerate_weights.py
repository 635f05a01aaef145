"""benchmarks/regenerate_weights.py: its counts, and one run with tiny models."""

import pytest
import torch
from torch import nn

from benchmarks import regenerate_weights


def test_weights_count_every_storage_once():
    model = nn.ModuleDict({"a": nn.Linear(1024, 256, bias=False), "b": nn.Linear(1024, 256, bias=False)})
    # 1024 x 256 x 4 bytes are 1 MiB
    assert regenerate_weights.weights_of(model) == 2
    model.b.weight = nn.Parameter(model.a.weight.detach())
    model.register_buffer("bits", torch.zeros(2**19, dtype=torch.uint8))
    assert regenerate_weights.weights_of(model) == 1.5


@pytest.mark.slow
def test_a_run(tmp_path):
    arch = "--arch supermask_one_layer_transformer_tiny"
    sizes = "--pairs 2 --warm-up 1 --words 100 --length 3 --max-tokens 3 --threads 1".split()
    arms = ["--arm", f"folded: {arch}", "--arm", f"bits: {arch} --regenerate-weights"]
    promise = ["--promise", "bits", "--at-most", "0.0001"]
    result = regenerate_weights.main([*sizes, *arms, *promise, "--output", tmp_path / "out"])
    assert result["promise"] == {"arm": "bits", "at_most": 0.0001, "holds": False}
    folded, bits = result["arms"]
    assert bits["weights"] < folded["weights"] / 8 and bits["ratio"] > 0
    assert all(arm["peak"] >= arm["running"] >= arm["resident"] for arm in (folded, bits))
    assert "weights, MiB" in (tmp_path / "out.md").read_text()


@pytest.mark.slow
def test_language_models_score_the_batch(tmp_path):
    arch = "--arch frozen_transformer_lm --freeze ffn --frozen-init glorot --decoder-layers 2 --decoder-embed-dim 32"
    sizes = "--pairs 2 --warm-up 1 --words 100 --length 3 --max-tokens 6 --threads 1".split()
    arms = ["--arm", f"stored: {arch}", "--arm", f"drawn: {arch} --regenerate-weights"]
    stored, drawn = regenerate_weights.main([*sizes, *arms, "--output", tmp_path / "out"])["arms"]
    assert drawn["weights"] < stored["weights"] and drawn["ratio"] > 0
    assert "The batch has 2 sentences of 3 tokens. " in (tmp_path / "out.md").read_text()

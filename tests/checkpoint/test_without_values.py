"""A model on the meta device is built without computing values, and has the tensors of a model with values."""

import subprocess
import sys

import pytest
import torch
from fairseq.modules import SinusoidalPositionalEmbedding

from fairseq_reservoir.checkpoint import dry_build, without_values as values
from tests.support.letters import WITH_EVERY_KIND

MODELS = {
    "reservoir_transformer_tiny": [
        *("--reservoir-encoder", WITH_EVERY_KIND["encoder"], "--reservoir-decoder", WITH_EVERY_KIND["decoder"])
    ],
    "supermask_one_layer_transformer": ["--mask-embeddings", "8"],
    "frozen_transformer_tiny": ["--freeze", "att", "--frozen-adapter", "vera", "--frozen-adapter-rank", "2"],
    "reservoir_roberta": ["--task", "masked_lm"],
    "lstm": [],
}


def tensors_of(model):
    everything = [*model.named_parameters(), *model.named_buffers()]
    return [(name, tensor.shape, tensor.dtype, tensor.device, tensor.requires_grad) for name, tensor in everything]


@pytest.mark.parametrize("arch", MODELS)
def test_only_values_are_skipped(arch, monkeypatch):
    found = tensors_of(dry_build.build_arch(arch, MODELS[arch]))
    monkeypatch.setattr(values, "_FILL", set())
    assert found == tensors_of(dry_build.build_arch(arch, MODELS[arch]))


def test_only_meta_tensors_are_skipped():
    with values.without_values():
        assert torch.nn.init.constant_(torch.empty(2), 3).mul_(2).tolist() == [6, 6]
        empty = SinusoidalPositionalEmbedding.get_embedding(3, 5, 1)
    table = SinusoidalPositionalEmbedding.get_embedding(3, 5, 1)
    assert table[0].tolist() == [0, 0, 1, 1, 0], "fairseq's own again: sin(0) and cos(0)"
    assert (empty.shape, empty.dtype) == (table.shape, table.dtype)


def test_models_are_built_without_sympy_and_the_compiler():
    """torch imports them to compute meta tensors, in a second and more. A new process, because other tests import them."""
    program = f"""
import sys
import fairseq_reservoir
from fairseq_reservoir.checkpoint.dry_build import build_arch
for arch, flags in {MODELS!r}.items():
    build_arch(arch, flags)
    assert not {{"sympy", "torch._dynamo"}} & sys.modules.keys(), arch
"""
    finished = subprocess.run([sys.executable, "-W", "ignore", "-c", program], capture_output=True, text=True)
    assert finished.returncode == 0, finished.stderr

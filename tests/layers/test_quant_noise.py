"""Quantization noise on frozen matrices: products and gradients equal fairseq's, and the matrix stays unchanged.

Scalar noise is tested too.
"""

import copy
from argparse import Namespace

import pytest
import torch
from fairseq.modules.quant_noise import quant_noise
from fairseq.modules.quantization.scalar.modules import IntLinear
from fairseq.quantization_utils import quantize_model_scalar
from torch import nn

from fairseq_reservoir.errors import InputError
from fairseq_reservoir.layers.quant_noise import protect_frozen
from fairseq_reservoir.plan.kinds import kind_of
from tests.support.building import build
from tests.support.letters import LETTERS

WORDS = torch.tensor([[1, 3], [0, 2]])
IMAGE = torch.linspace(-1, 1, 2 * 4 * 3 * 3).reshape(2, 4, 3, 3)
KINDS = {
    "linear": (lambda: nn.Linear(8, 3), torch.linspace(-1, 1, 16).reshape(2, 8), 4),
    "embedding": (lambda: nn.Embedding(4, 8), WORDS, 4),
    "convolution": (lambda: nn.Conv2d(4, 3, 3, padding=1), IMAGE, 9),
}


def run(module, given):
    """Return the output and the gradient of the input, with noise from seed 5."""
    given = given.clone().requires_grad_(given.is_floating_point())
    torch.manual_seed(5)
    out = module(given)
    if out.requires_grad:
        out.square().sum().backward()
    return out.detach(), given.grad


@pytest.mark.parametrize("kind", KINDS)
def test_a_frozen_layer_computes_fairseqs_outputs_and_keeps_its_bits(kind):
    make, given, block = KINDS[kind]
    fairseqs = quant_noise(make(), 0.5, block).requires_grad_(False)
    ours, plain = copy.deepcopy(fairseqs), copy.deepcopy(fairseqs)
    plain._forward_pre_hooks.clear()
    protect_frozen(ours)
    protect_frozen(ours)  # a second call does nothing
    before = ours.weight.clone()
    for _ in range(3):
        fairseqs.weight.data = before.clone()  # ruined by every pass
        (expected, slope), (found, own_slope) = run(fairseqs, given), run(ours, given)
        assert found.equal(expected) and ours.weight.equal(before) and not fairseqs.weight.equal(before)
        assert slope is None or own_slope.equal(slope)
    assert [name for name, _ in ours.named_parameters()] == [name for name, _ in plain.named_parameters()]
    assert run(ours.eval(), given)[0].equal(run(plain, given)[0])


def test_by_hand():
    linear = nn.Linear(4, 1, bias=False).requires_grad_(False)
    linear.weight.copy_(torch.tensor([[1.0, 2.0, 4.0, 8.0]]))
    protect_frozen(quant_noise(linear, 0.5, 2))
    # Two blocks of two entries, each dropped or doubled: 2 (0 or 3) + 2 (0 or 12).
    found = {linear(torch.ones(4)).item() for _ in range(60)}
    assert found == {0.0, 6.0, 24.0, 30.0}
    assert linear.weight.tolist() == [[1, 2, 4, 8]]


def test_trained_it_is_fairseqs():
    fairseqs = quant_noise(nn.Linear(8, 3), 0.5, 4)
    ours = copy.deepcopy(fairseqs)
    protect_frozen(ours)
    given = KINDS["linear"][1]
    for _ in range(2):
        assert all(a.equal(b) for a, b in zip(run(fairseqs, given), run(ours, given)))
        assert ours.weight.equal(fairseqs.weight) and ours.weight.grad.equal(fairseqs.weight.grad)


def test_a_pass_that_fails_leaves_the_matrix():
    linear = quant_noise(nn.Linear(8, 3), 0.5, 4).requires_grad_(False)
    protect_frozen(linear)
    before = linear.weight.clone()
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        linear(torch.ones(2, 7))
    assert linear.weight.equal(before) and linear.weight is linear._parameters["weight"]


@pytest.mark.parametrize("letter", LETTERS["encoder"])
def test_scalar_noise_is_built_in_or_refused(letter):
    """fairseq replaces linear layers and embeddings, but cannot replace matrices of a GRU or a dynamic convolution."""
    if not kind_of(letter).takes_scalar_noise:
        with pytest.raises(AttributeError):
            quantize_model_scalar(build(f"L{letter}", "L"), Namespace(quant_noise_scalar=0.1))
        message = "^--quant-noise-scalar 0.1: not supported in G, g, C or c layers; remove the flag$"
        with pytest.raises(InputError, match=message):
            build(f"L{letter}", "L", quant_noise_scalar=0.1)
        return
    model = build(f"L{letter}", "L", quant_noise_scalar=0.1)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    quantize_model_scalar(model, Namespace(quant_noise_scalar=0.1))
    assert any(isinstance(module, IntLinear) for module in model.encoder.layers[1].modules())
    assert all(tensor.equal(before[name]) for name, tensor in model.state_dict().items())

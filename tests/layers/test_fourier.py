"""M computes FNet's mixing: the real part of an orthonormal 2-D DFT over a sentence's own tokens and its channels."""

import math

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from fairseq_reservoir.layers import build_slot
from fairseq_reservoir.layers.base import Context
from tests.support.building import slot_config

# Sentences of 5, 3 and 4 tokens, padded on the right, on the left and on both sides.
MASK = torch.tensor([[0, 0, 0, 0, 0], [1, 1, 0, 0, 0], [1, 0, 0, 0, 0]]).bool()
SIDES = [MASK, MASK.flip(1), torch.tensor([[0, 0, 0, 0, 0], [1, 0, 0, 0, 1], [0, 0, 0, 0, 1]]).bool()]


def mixing(**changes):
    return build_slot("M", "encoder", slot_config(**changes)).fourier.double()


def mix(x, mask=None, layer=None):
    return (layer or mixing()).transform(x, Context(padding_mask=mask))


def random(*shape):
    return torch.randn(*shape, dtype=torch.float64)


def test_two_words_of_two_channels_by_hand():
    # F_2 = (1 1; 1 -1) on both sides of (1 2; 3 7): the sum 13; columns 4 - 9 = -5; rows 3 - 10 = -7; 1 + 7 - 2 - 3 = 3.
    # The result is divided by sqrt(2 * 2).
    x = torch.tensor([[[1.0, 2.0]], [[3.0, 7.0]]], dtype=torch.float64)
    expected = torch.tensor([[6.5, -2.5], [-3.5, 1.5]], dtype=torch.float64)
    assert (mix(x)[:, 0] - expected).abs().max() < 1e-15


@pytest.mark.parametrize("side", ["left", "right"])
def test_three_words_beside_a_longer_sentence_by_hand(side):
    # Tokens 1, 2, 3 in the first of two channels: both channels become (1, 2, 3) / sqrt(2). With cos(120) = cos(240) = -1/2:
    # 1 + 2 + 3 = 6, and twice 1 - 2/2 - 3/2 = -3/2, divided by sqrt(3). There is no imaginary part for the sines.
    words = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64)
    at = slice(2, 5) if side == "left" else slice(0, 3)
    x, mask = random(5, 2, 2), torch.zeros(2, 5, dtype=torch.bool)
    x[at, 0, 0], x[at, 0, 1] = words, 0
    mask[0] = True
    mask[0, at] = False
    expected = torch.tensor([6, -1.5, -1.5], dtype=torch.float64) / math.sqrt(6)
    y = mix(x, mask)[:, 0]
    assert (y[at] - expected[:, None]).abs().max() < 1e-15
    assert y[mask[0]].abs().max() == 0


@pytest.mark.parametrize("mask", SIDES)
@pytest.mark.parametrize("dtype, tolerance", [(torch.float64, 1e-13), (torch.float32, 1e-6)])
def test_equals_torchs_fft_of_each_sentence_alone(mask, dtype, tolerance):
    x = random(5, 3, 8)
    y = mix(x.to(dtype), mask, mixing().to(dtype))
    assert y.dtype == dtype
    for sentence, padding in enumerate(mask):
        alone = x[~padding, sentence]
        expected = torch.fft.fft2(alone).real / math.sqrt(alone.numel())
        assert (y[~padding, sentence] - expected).abs().max() < tolerance
        assert (mix(alone[:, None])[:, 0] - expected).abs().max() < 1e-13


@pytest.mark.parametrize("length", [1, 2, 7, 97, 300])
def test_batches_with_and_without_padding_take_different_routes_to_the_same(length):
    x, mask = random(length + 1, 2, 8), torch.zeros(2, length + 1, dtype=torch.bool)
    mask[0, -1] = True
    assert (mix(x, mask)[:-1, :1] - mix(x[:-1, :1])).abs().max() < 1e-12


@pytest.mark.parametrize("mask", [None, SIDES[2]])
def test_twice_is_the_even_part(mask):
    """F_n F_n is the reversal x[-j mod n], so the real part applied twice is (X + X reversed in both directions) / 2."""
    x, layer = random(5, 3, 8), mixing()
    words = torch.ones(3, 5, dtype=torch.bool) if mask is None else ~mask
    twice = mix(mix(x, mask, layer), mask, layer)
    for sentence, at in enumerate(words):
        alone = x[at, sentence]
        reversed_ = alone.flip(0, 1).roll((1, 1), (0, 1))
        assert (twice[at, sentence] - (alone + reversed_) / 2).abs().max() < 1e-13


@pytest.mark.parametrize("mask", [None, SIDES[0]])
def test_gradients(mask):
    layer = mixing()
    assert torch.autograd.gradcheck(lambda x: mix(x, mask, layer), random(5, 3, 4).requires_grad_())


def test_values_at_padding_have_no_influence():
    mask, layer = SIDES[2], mixing()
    x = random(5, 3, 8)
    hidden = x.masked_fill(mask.t().unsqueeze(2), math.inf)
    assert mix(x, mask, layer).equal(mix(hidden, mask, layer))


@pytest.mark.parametrize("dtype, tolerance", [(torch.float16, 2e-3), (torch.bfloat16, 2e-2)])
@pytest.mark.parametrize("padded", [False, True])
def test_half_precision_and_long_sentences(dtype, tolerance, padded):
    x = random(601, 2, 16).to(dtype)
    mask = torch.zeros(2, 601, dtype=torch.bool)
    mask[1, 0] = padded
    mask = mask if padded else None
    y = mix(x, mask, mixing().to(dtype))
    assert y.dtype == dtype and (y.double() - mix(x.double(), mask)).abs().max() < 4 * tolerance
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert (mix(x.float(), mask, mixing().float()) - mix(x.double(), mask)).abs().max() < 1e-4


def test_no_length_is_read_by_the_host():
    """Reading a value of a meta tensor raises an error."""
    with FakeTensorMode():
        layer = build_slot("M", "encoder", slot_config())
        assert layer(torch.empty(5, 3, 8), torch.empty(3, 5, dtype=torch.bool)).shape == (5, 3, 8)


@pytest.mark.parametrize("norm_first", [False, True])
def test_the_layer_is_fnets_block(norm_first):
    """LN(x + mix(x)), then LN(h + FFN(h)); in pre-norm models each LayerNorm comes first. Only the FFN sublayer has dropout."""
    layer = build_slot("M", "encoder", slot_config(norm_first=norm_first)).double()
    x = random(5, 3, 8)
    ffn = lambda h: layer.ffn.fc2(layer.ffn.fc1(h).relu())  # noqa: E731
    norm, last = layer.fourier.layer_norm, layer.ffn.layer_norm
    if norm_first:
        expected = x + mix(norm(x))
        expected = expected + ffn(last(expected))
    else:
        expected = norm(x + mix(x))
        expected = last(expected + ffn(expected))
    assert (layer(x) - expected).abs().max() < 1e-12
    assert {name for name, _ in layer.fourier.named_parameters()} == {"layer_norm.weight", "layer_norm.bias"}
    dropping = build_slot("M", "encoder", slot_config(dropout=0.5))
    assert dropping.fourier.dropout_module.p == 0 and dropping.ffn.dropout_module.p == 0.5

"""S and s: one weight for each head and distance, with each row of weights divided by its norm over the real tokens."""

import math

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

from fairseq_reservoir.layers import build_slot
from fairseq_reservoir.layers.base import Context
from tests.support.building import slot_config

# Sentences of 5, 3 and 4 tokens.
MASK = torch.tensor([[0, 0, 0, 0, 0], [1, 1, 0, 0, 0], [1, 0, 0, 0, 0]]).bool()
SIDES = [None, MASK, MASK.flip(1)]


def mixing(stack="encoder", trained=False, **changes):
    """Mixing sublayer in float64. With ``trained``, weights have various sizes, as after training."""
    layer = build_slot("S", stack, slot_config(**changes)).self_attn.double()
    if trained:
        nn.init.normal_(layer.mix)
    return layer


def random(*shape):
    return torch.randn(*shape, dtype=torch.float64)


@torch.no_grad()
def matrix(layer, time):
    """A (time, time) of a layer with one head and one channel: its outputs for a 1 at each token."""
    layer.v_proj.weight.fill_(1), layer.v_proj.bias.zero_(), layer.out_proj.weight.fill_(1)
    return layer.transform(torch.eye(time, dtype=torch.float64).unsqueeze(2), Context())[:, :, 0]


def one_channel(stack, weights):
    layer = mixing(stack, embed_dim=1, heads=1, max_positions=3)
    layer.mix.data = torch.tensor([weights], dtype=torch.float64)
    return layer


def test_encoder_by_hand():
    # Weights of the tokens two and one before, of the token itself, and one and two after.
    layer = one_channel("encoder", [2.0, 4.0, 3.0, -4.0, 6.0])
    assert torch.allclose(matrix(layer, 1), torch.tensor([[1.0]]).double())
    # 3^2 + 4^2 = 5^2
    assert torch.allclose(matrix(layer, 2), torch.tensor([[3.0, -4.0], [4.0, 3.0]]).double() / 5)
    # 3^2 + 4^2 + 6^2 = 61, 4^2 + 3^2 + 4^2 = 41, 2^2 + 4^2 + 3^2 = 29
    rows = torch.tensor([[3.0, -4.0, 6.0], [4.0, 3.0, -4.0], [2.0, 4.0, 3.0]]).double()
    assert torch.allclose(matrix(layer, 3), rows / torch.tensor([61.0, 41.0, 29.0]).double().sqrt()[:, None])


def test_decoder_by_hand():
    # Weights of the tokens two and one before, and of the token itself.
    layer = one_channel("decoder", [12.0, 4.0, 3.0])
    # 3^2 = 3^2, 4^2 + 3^2 = 5^2, 12^2 + 4^2 + 3^2 = 13^2
    expected = torch.tensor([[1, 0, 0], [4 / 5, 3 / 5, 0], [12 / 13, 4 / 13, 3 / 13]]).double()
    assert torch.allclose(matrix(layer, 3), expected)


def slowly(layer, x, causal):
    """f(x) of one sentence (time, width), with every weight indexed and every row divided by its norm."""
    v = layer.v_proj(x)
    y = torch.zeros_like(v)
    head_of = [channel // (v.size(1) // layer.heads) for channel in range(v.size(1))]
    for i in range(len(x)):
        seen = range(i + 1) if causal else range(len(x))
        for channel, head in enumerate(head_of):
            w = [layer.mix[head, layer.positions - 1 + j - i] for j in seen]
            y[i, channel] = sum(a * v[j, channel] for a, j in zip(w, seen)) / math.sqrt(sum(a * a for a in w))
    return layer.out_proj(y)


@pytest.mark.parametrize("mask", SIDES)
@pytest.mark.parametrize("stack", ["encoder", "decoder"])
@pytest.mark.parametrize("positions", [5, 32])
@torch.no_grad()
def test_equals_a_slow_sum_over_each_sentence(stack, mask, positions):
    layer, x = mixing(stack, trained=True, max_positions=positions), random(5, 3, 8)
    y = layer.transform(x, Context(padding_mask=mask))
    for sentence in range(3):
        words = slice(None) if mask is None else ~mask[sentence]
        expected = slowly(layer, x[words, sentence], causal=stack == "decoder")
        assert (y[words, sentence] - expected).abs().max() < 1e-12


@pytest.mark.parametrize("stack", ["encoder", "decoder"])
@pytest.mark.parametrize("time", [1, 2, 20, 32])
def test_rows_have_norm_1_at_every_length(stack, time):
    """Independent tokens keep their variance. The weights of S are then +-1 / sqrt(number of tokens)."""
    a = matrix(mixing(stack, embed_dim=1, heads=1), time)
    assert torch.allclose(a.square().sum(1), torch.ones(time).double())
    words = torch.arange(1, time + 1) if stack == "decoder" else torch.full((time,), time)
    expected = words.double().rsqrt()[:, None].expand(time, time)
    assert torch.allclose(a.abs(), expected.tril() if stack == "decoder" else expected)
    trained = matrix(mixing(stack, trained=True, embed_dim=1, heads=1), time)
    assert torch.allclose(trained.square().sum(1), torch.ones(time).double())


@pytest.mark.parametrize("stack, mask", [("encoder", None), ("encoder", MASK), ("decoder", None), ("decoder", MASK)])
def test_gradients(stack, mask):
    layer = mixing(stack, trained=True, embed_dim=4, max_positions=6)

    def f(x, *parameters):
        return torch.func.functional_call(_Transform(layer, mask), dict(zip(names, parameters)), (x,))

    names = [f"layer.{name}" for name, _ in layer.named_parameters() if "layer_norm" not in name]
    values = [layer.get_parameter(name.removeprefix("layer.")) for name in names]
    assert "layer.mix" in names
    assert torch.autograd.gradcheck(f, (random(5, 3, 4).requires_grad_(), *values))


class _Transform(nn.Module):
    def __init__(self, layer, mask):
        super().__init__()
        self.layer, self.mask = layer, mask

    def forward(self, x):
        return self.layer.transform(x, Context(padding_mask=self.mask))


@pytest.mark.parametrize("steps", [[1] * 6, [3, 1, 2], [6]])
@pytest.mark.parametrize("first", [0, 2])
@torch.no_grad()
def test_incremental_outputs_equal_those_of_the_whole_sentence(steps, first):
    """In steps of one token and of several. The ``first`` tokens of the second sentence are padding."""
    layer, x, state = mixing("decoder", trained=True), random(6, 2, 8), {}
    mask = torch.zeros(2, 6, dtype=torch.bool)
    mask[1, :first] = True
    expected, done = layer.transform(x, Context(padding_mask=mask)), 0
    for count in steps:
        now = slice(done, done + count)
        padding = mask[:, now] if mask[:, now].any() else None
        y = layer.transform(x[now], Context(padding_mask=padding, incremental_state=state))
        assert (y - expected[now]).abs().max() < 1e-12
        done += count


@torch.no_grad()
def test_a_reordered_cache_and_one_of_fewer_beams():
    layer, x, state = mixing("decoder", trained=True), random(4, 3, 8), {}
    for order in ([2, 0, 0], [1, 2]):
        x = x[:, order] if state else x
        if state:
            layer.reorder_incremental_state(state, torch.tensor(order))
        begun = next(iter(state.values()))["v"].size(0) if state else 0
        for word in range(begun, begun + 2):
            y = layer.transform(x[word : word + 1], Context(incremental_state=state))
            assert (y - layer.transform(x[: word + 1], Context())[-1:]).abs().max() < 1e-12
    layer.reorder_incremental_state({}, torch.tensor([0]))  # there is nothing to reorder before the first token


def test_lengths_beyond_those_trained():
    """Training on 4 tokens changes the weights of distances up to 3, and no others."""
    layer = mixing("decoder")
    layer.transform(random(4, 3, 8), Context()).square().sum().backward()
    assert layer.mix.grad[:, :-4].count_nonzero() == 0 and layer.mix.grad[:, -4:].count_nonzero() > 0
    assert layer.transform(random(32, 3, 8), Context()).isfinite().all()


@pytest.mark.parametrize("stack", ["encoder", "decoder"])
def test_further_apart_than_max_positions(stack):
    """Larger distances use the weight of the largest one. This equals a layer with a table that repeats its last weight."""
    layer, longer = mixing(stack), mixing(stack, max_positions=35)
    longer.load_state_dict({**layer.state_dict(), "mix": longer.mix})
    sides = (3, 0) if stack == "decoder" else (3, 3)
    longer.mix.data = torch.nn.functional.pad(layer.mix.data[None], sides, mode="replicate")[0]
    x = random(35, 1, 8)
    assert torch.equal(layer.transform(x, Context()), longer.transform(x, Context()))
    if stack == "decoder":
        state, whole = {}, layer.transform(x, Context())
        steps = [layer.transform(x[t : t + 1], Context(incremental_state=state)) for t in range(35)]
        assert (torch.cat(steps) - whole).abs().max() < 1e-12


@pytest.mark.parametrize("stack", ["encoder", "decoder"])
def test_padding_beyond_max_positions_changes_nothing(stack):
    layer, x = mixing(stack), random(32, 1, 8)
    padding = torch.zeros(1, 40, dtype=torch.bool)
    padding[:, 32:] = True
    padded = layer.transform(torch.cat((x, random(8, 1, 8))), Context(padding_mask=padding))
    assert (padded[:32] - layer.transform(x, Context())).abs().max() < 1e-12


def test_heads_divide_the_width():
    with pytest.raises(ValueError, match="3 heads do not divide a width of 8"):
        build_slot("S", "encoder", slot_config(heads=3))


@pytest.mark.parametrize("dtype, tolerance", [(torch.float16, 5e-3), (torch.bfloat16, 5e-2)])
@pytest.mark.parametrize("stack", ["encoder", "decoder"])
@torch.no_grad()
def test_half_precision_and_long_sentences(stack, dtype, tolerance):
    layer, x = mixing(stack, max_positions=1024).to(dtype), random(900, 2, 8).to(dtype)
    mask = torch.zeros(2, 900, dtype=torch.bool)
    mask[1, :200] = True
    y = layer.transform(x, Context(padding_mask=mask))
    expected = layer.double().transform(x.double(), Context(padding_mask=mask))
    words = ~mask.t()
    assert y.dtype == dtype and (y - expected)[words].abs().max() < 3 * tolerance
    with torch.autocast("cpu", dtype=torch.bfloat16):
        automatic = layer.float().transform(x.float(), Context(padding_mask=mask))
    assert (automatic - expected)[words].abs().max() < 0.15


def test_weights_near_0_give_no_infinite_gradient():
    layer = mixing("decoder")
    layer.mix.data.zero_()
    layer.transform(random(3, 2, 8), Context()).square().sum().backward()
    assert all(p.grad.isfinite().all() for name, p in layer.named_parameters() if "layer_norm" not in name)


@pytest.mark.parametrize("stack", ["encoder", "decoder"])
def test_no_length_is_read_by_the_host(stack):
    """Reading a value of a meta tensor raises an error."""
    with FakeTensorMode():
        layer = build_slot("S", stack, slot_config(memory_dim=0))
        context = Context(padding_mask=torch.empty(3, 5, dtype=torch.bool))
        assert layer.run(torch.empty(5, 3, 8), context).shape == (5, 3, 8)


def test_trained_weights_begin_as_frozen_ones_are_drawn():
    mix = mixing("encoder", max_positions=1000).mix
    assert mix.abs().unique().tolist() == [0.25] and abs(mix.mean()) < 0.025

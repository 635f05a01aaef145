"""Trained rounded matrices: gradient, padding, precision, and states with and without scales."""

import copy

import pytest
import torch

from fairseq_reservoir.masks.levels import Levels
from fairseq_reservoir.masks.rounded_weight import RoundedEmbedding, RoundedLinear
from fairseq_reservoir.random_tensors import philox

KINDS = ["sign", "ternary", "3", "4", "16"]


def linear(kind="ternary", **options):
    return RoundedLinear(6, 4, Levels(kind), **{"seed": 1, "name": "w", **options})


def test_straight_through_gradient_by_hand():
    layer = RoundedLinear(3, 2, Levels("sign"))
    with torch.no_grad():
        layer.latent.copy_(torch.tensor([[1.0, -2.0, 3.0], [4.0, 0.0, -5.0]]))
    # Rows have magnitudes 2 and 3, see test_levels: 2 - 2 x 2 + 2 x 3 = 4 and 3 + 3 x 2 - 3 x 3 = 0.
    y = layer(torch.tensor([[1.0, 2.0, 3.0]]))
    assert y.tolist() == [[4.0, 0.0]]
    # The gradient of a weight is upstream times input, independent of the rounding.
    (y * torch.tensor([10.0, -1.0])).sum().backward()
    assert layer.latent.grad.tolist() == [[10.0, 20.0, 30.0], [-1.0, -2.0, -3.0]]


@pytest.mark.parametrize("kind", KINDS)
def test_the_gradient_is_that_of_an_ordinary_layer_with_the_rounded_matrix(kind):
    layer, x, upstream = linear(kind), torch.randn(5, 6, requires_grad=True), torch.randn(5, 4)
    plain = torch.nn.Linear(6, 4, bias=False)
    plain.weight = torch.nn.Parameter(layer.weight.detach().clone())
    ours, theirs = (
        torch.autograd.grad((module(x) * upstream).sum(), (x, weight))
        for module, weight in ((layer, layer.latent), (plain, plain.weight))
    )
    assert all(a.equal(b) for a, b in zip(ours, theirs))


def test_it_starts_from_seed_and_name():
    assert linear().latent.equal(linear().latent) and not linear().latent.equal(linear(name="v").latent)
    # Kaiming uniform with fan-in 6 is within sqrt(6 / 6).
    assert linear(gain=0.5).latent.equal(torch.from_numpy(philox.uniform(1, "w", (4, 6), 1.0)) * 0.5)


@pytest.mark.parametrize("kind", KINDS)
def test_the_padding_row_stays_zero(kind):
    embedding = RoundedEmbedding(7, 4, 1, Levels(kind))
    tokens = torch.tensor([[0, 1, 2]])
    # Used both for look-up and as output projection: every row except padding has a gradient.
    (embedding(tokens).sum() + (torch.ones(4) @ embedding.weight.T * torch.arange(1.0, 8.0)).sum()).backward()
    assert not embedding.latent.grad[1].any() and embedding.latent.grad.any(1).sum() == 6
    assert not embedding(tokens)[0, 1].any() and embedding(tokens)[0, 2].any()


@pytest.mark.parametrize("dtype", [torch.half, torch.bfloat16])
def test_latent_weights_stay_float32_bit_for_bit_and_so_does_their_gradient(dtype):
    layer = linear("4")
    latent, parameter = layer.latent.detach().clone(), layer.latent
    layer(torch.randn(2, 6)).sum().backward()
    layer.to(dtype)
    assert layer.latent is parameter and layer.latent.equal(latent) and layer.latent.grad.dtype == torch.float32
    layer.zero_grad()
    out = layer(torch.randn(2, 6, dtype=dtype))
    out.sum().backward()
    assert out.dtype == layer.bias.dtype == layer.folded().weight.dtype == dtype
    assert layer.latent.grad.dtype == torch.float32
    assert layer.weight.equal(linear("4").weight.to(dtype)) and layer.float().weight.equal(linear("4").weight)


def test_a_checkpoint_holds_the_latent_weights_alone():
    assert list(linear().state_dict()) == ["latent"]


@pytest.mark.parametrize("kind", KINDS)
def test_levels_and_scales_in_place_of_latent_weights_give_the_same_matrix(kind):
    layer, other = linear(kind), linear(kind, seed=2)
    levels, scales = layer.levels_and_scales()
    other.load_state_dict({"latent": levels, "scales": scales})
    assert other.weight.equal(layer.weight) and not other.weight.requires_grad
    assert list(other.state_dict()) == ["latent", "scales"]
    twin = copy.deepcopy(other).half().float()
    assert twin.weight.equal(layer.weight)
    other.load_state_dict(layer.state_dict())
    assert other.scales is None and other.weight.equal(layer.weight) and other.weight.requires_grad


@torch.no_grad()
def test_in_evaluation_it_is_rounded_again_only_where_something_may_have_changed():
    layer = linear().eval()
    first = layer.weight
    assert layer.weight is first
    layer.latent.mul_(-1)
    assert layer.weight.equal(-first)
    layer.latent.data = -layer.latent.data
    assert layer.weight.equal(first)
    layer.latent.data.mul_(-1)  # like optimizers in training, which do not change the version counter
    assert layer.train().weight.equal(-first) and layer.eval().weight.equal(-first)
    layer.load_state_dict(linear().state_dict())
    assert layer.weight.equal(first)


@pytest.mark.parametrize("kind", KINDS)
def test_folded_modules_compute_the_same(kind):
    layer, embedding = linear(kind).eval(), RoundedEmbedding(7, 4, 1, Levels(kind)).eval()
    x, tokens = torch.randn(5, 6), torch.arange(7)
    assert layer.folded().weight.equal(layer.weight) and not layer.folded().bias.any()
    torch.testing.assert_close(layer.folded()(x), layer(x))
    assert embedding.folded()(tokens).equal(embedding(tokens)) and embedding.folded().padding_idx == 1


def test_a_layer_created_and_used_in_inference_mode():
    with torch.inference_mode():
        layer = linear().eval()
        assert layer(torch.eye(6)).equal(linear().eval()(torch.eye(6)))

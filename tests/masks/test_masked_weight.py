"""Masked weights: gradient, choices, scale, shared storage, precision and state dicts."""

import copy
import hashlib
import math

import pytest
import torch
from torch import nn

from fairseq_reservoir.masks.masked_linear import MaskedLinear
from fairseq_reservoir.masks.masked_weight import WEIGHT_INITIALISERS, MaskedWeight, weight_recipe
from fairseq_reservoir.plan.mask_choices import keep_count
from fairseq_reservoir.random_tensors import philox
from fairseq_reservoir.random_tensors.initialisers import MATRIX_INITIALISERS
from tests.support.masks_by_sorting import expected_entries


def sha(tensor):
    return hashlib.sha256(tensor.contiguous().numpy().tobytes()).hexdigest()


def expected_mask(module):
    c = module.choices
    return expected_entries(module.scores, c.keep_ratios, c.ranking, c.kind == "signed")


class Stack(nn.Module):
    """Three layers with separate masks on one shared weight."""

    def __init__(self, **options):
        super().__init__()
        self.owner = nn.Module()
        choices = MaskedWeight(12, 8, seed=1, **options).choices
        self.owner.register_buffer("fc1", weight_recipe((12, 8), choices, "signed_constant", None, "fc1").draw(1))
        self.layers = nn.ModuleList(
            MaskedLinear(8, 12, seed=1, name=f"layers.{i}.fc1", shared=(self.owner, "fc1"), **options) for i in range(3)
        )

    def forward(self, x):
        return sum(layer(x) for layer in self.layers)


@pytest.mark.parametrize(
    "choices", [{}, {"ranking": "value"}, {"kind": "signed"}, {"coats": (0.2, 0.1)}, {"scope": "row"}]
)
def test_score_gradient_is_that_of_the_masked_weight_times_w_times_the_sign(choices):
    layer = MaskedLinear(5, 7, 0.4, seed=3, **choices)
    x, upstream = torch.randn(6, 5), torch.randn(6, 7)
    (layer(x) * upstream).sum().backward()
    # y = x W'^T, hence dL/dW' = upstream^T x.
    grad_of_weight = upstream.T @ x
    expected = grad_of_weight * layer.frozen_weight
    if layer.choices.ranking == "magnitude" and layer.choices.kind == "binary":
        expected = expected * layer.scores.detach().sign()
    torch.testing.assert_close(layer.scores.grad, expected, rtol=1e-6, atol=1e-7)
    assert (layer.scores.grad[layer.mask == 0] != 0).all()
    assert layer.frozen_weight.grad is None and not layer.frozen_weight.requires_grad


@pytest.mark.parametrize(
    "choices, expected",
    [
        ({}, [-1.0, 4.0, -9.0, 16.0]),
        ({"ranking": "value"}, [1.0, 4.0, 9.0, 16.0]),
        ({"kind": "signed"}, [1.0, 4.0, 9.0, 16.0]),
        ({"scope": "row"}, [-1.0, 4.0, -9.0, 16.0]),
    ],
)
def test_straight_through_gradient_by_hand(choices, expected):
    # Upstream gradient 1 2 3 4, W the same, signs of the scores - + - +. Half are kept, and all have a gradient.
    layer, one_to_four = MaskedWeight(1, 4, 0.5, seed=1, **choices), torch.tensor([[1.0, 2.0, 3.0, 4.0]])
    with torch.no_grad():
        layer.frozen_weight.copy_(one_to_four)
        layer.scores.copy_(torch.tensor([[-0.1, 0.2, -0.3, 0.4]]))
    (layer.weight * one_to_four).sum().backward()
    assert layer.mask.count_nonzero() == 2 and layer.scores.grad.tolist() == [expected]


@pytest.mark.parametrize("follow_sign", [True, False])
def test_gradient_is_that_of_a_linear_stand_in_with_the_mask_held_constant(follow_sign):
    ranking = "magnitude" if follow_sign else "value"
    layer = MaskedLinear(4, 3, 0.5, seed=3, ranking=ranking).double()
    x = torch.randn(2, 4, dtype=torch.float64, requires_grad=True)
    mask, start, w = layer.mask, layer.scores.detach().clone(), layer.frozen_weight
    slope = start.sign() if follow_sign else torch.ones_like(start)

    def stand_in(x, scores):
        return x @ (w * (mask + slope * (scores - start))).T

    scores = start.clone().requires_grad_()
    assert torch.autograd.gradcheck(stand_in, (x, scores))
    assert torch.autograd.gradcheck(layer, (x,))
    ours = torch.autograd.grad(layer(x).pow(2).sum(), (x, layer.scores))
    theirs = torch.autograd.grad(stand_in(x, scores).pow(2).sum(), (x, scores))
    for a, b in zip(ours, theirs):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("keep", [0.1, 0.5, 0.7, 1])
def test_number_of_ones(keep):
    assert MaskedLinear(9, 15, keep).mask.sum() == keep_count(keep, 135)


def test_keeping_everything_is_the_dense_layer():
    layer, x = MaskedLinear(6, 4, 1), torch.randn(3, 6)
    assert torch.equal(layer(x), nn.functional.linear(x, layer.frozen_weight))


def test_coats_and_signs():
    layer = MaskedLinear(10, 10, 0.5, coats=(0.2, 0.1), kind="signed", seed=1)
    assert torch.equal(layer.mask.float(), expected_mask(layer))
    assert torch.equal(layer.mask.abs().unique(return_counts=True)[1], torch.tensor([50, 30, 10, 10]))
    assert torch.equal(layer.weight, layer.frozen_weight * layer.mask)


@pytest.mark.parametrize("init", WEIGHT_INITIALISERS)
def test_weights_are_the_initialisers_times_the_scale(init):
    layer = MaskedLinear(6, 4, 0.25, init=init, seed=5, name="w")
    assert torch.equal(layer.frozen_weight, torch.from_numpy(MATRIX_INITIALISERS[init](5, "w", (4, 6))) * 2)
    plain = MaskedLinear(6, 4, 0.25, init=init, seed=5, name="w", gain=1)
    assert torch.equal(plain.frozen_weight, torch.from_numpy(MATRIX_INITIALISERS[init](5, "w", (4, 6))))


def test_the_recipe_that_is_kept_is_the_one_drawn_from():
    choices = MaskedWeight(2, 2, 0.25).choices
    layer = MaskedWeight(4, 6, 0.25, seed=5, name="w", init="kaiming_normal", zero_row=2)
    assert layer.recipe == weight_recipe((4, 6), choices, "kaiming_normal", None, "w", zero_row=2)
    assert (layer.recipe.scale, layer.recipe.zero_row) == (2, 2) and not layer.frozen_weight[2].any()
    assert torch.equal(layer.frozen_weight, layer.recipe.draw(5)) and layer.recipes == {"frozen_weight": layer.recipe}
    owner = MaskedWeight(4, 6, seed=1, name="owner")
    sharing = MaskedWeight(4, 6, seed=1, shared=(owner, "frozen_weight"))
    assert sharing.recipe is owner.recipe and sharing.recipes == {}
    owner.recipes.clear()
    assert sharing.recipe is None


@pytest.mark.parametrize("init", WEIGHT_INITIALISERS)
def test_variance_does_not_depend_on_the_keep_ratio(init):
    x = torch.randn(512, 256, generator=torch.Generator().manual_seed(1))
    cases = [{"keep_ratio": k} for k in (0.1, 0.3, 0.5, 0.9, 1)]
    cases += [{"keep_ratio": 0.5, "coats": (0.2, 0.05)}, {"keep_ratio": 0.3, "kind": "signed"}]
    cases += [{"keep_ratio": 0.3, "pin": 0.5}, {"keep_ratio": 0.3, "random": True}, {"keep_ratio": 0.3, "scope": "row"}]
    std = [MaskedLinear(256, 256, init=init, seed=2, **case)(x).std().item() for case in cases]
    dense = nn.functional.linear(x, MaskedLinear(256, 256, 1, init=init, seed=2).frozen_weight).std().item()
    assert std == pytest.approx([dense] * len(std), rel=0.1)


def test_scores_start_within_one_over_the_root_of_fan_in():
    scores = MaskedLinear(25, 400, 0.5, seed=1).scores.detach()
    assert scores.abs().max() < 0.2 and scores.std().item() == pytest.approx(0.2 / math.sqrt(3), rel=0.03)
    assert scores.dtype == torch.float32


@pytest.mark.parametrize(
    "options, message",
    [
        ({"init": "normal"}, "init normal: must be one of kaiming_uniform, .*"),
        ({"pin": 0.5}, "seed None: a pinned or random mask needs a seed, .*"),
        ({"random": True}, "seed None: a pinned or random mask needs a seed, .*"),
        ({"shared": (MaskedLinear(2, 2), "frozen_weight")}, r"shared frozen_weight \(2, 2\): must be \(4, 3\)"),
    ],
)
def test_refused(options, message):
    with pytest.raises(ValueError, match=f"^{message}$"):
        MaskedLinear(3, 4, 0.5, **options)


def test_seed_and_name_decide_the_tensors_and_torchs_generator_stands_in():
    a, b = MaskedLinear(3, 4, seed=1, name="a"), MaskedLinear(3, 4, seed=1, name="b")
    assert torch.equal(a.frozen_weight, MaskedLinear(3, 4, seed=1, name="a").frozen_weight)
    assert not torch.equal(a.frozen_weight, b.frozen_weight) and not torch.equal(a.scores, b.scores)
    torch.manual_seed(1)
    first, second = MaskedLinear(3, 4), MaskedLinear(3, 4)
    torch.manual_seed(1)
    assert torch.equal(first.frozen_weight, MaskedLinear(3, 4).frozen_weight)
    assert not torch.equal(first.frozen_weight, second.frozen_weight)


def test_state_dict_holds_the_frozen_weight_and_the_scores_only():
    layer = MaskedLinear(8, 12)
    assert {k: v.numel() * v.element_size() for k, v in layer.state_dict().items()} == {
        "frozen_weight": 4 * 96,
        "scores": 4 * 96,
    }
    assert [n for n, _ in layer.named_parameters()] == ["scores"]


def test_shared_weights_are_stored_once():
    model = Stack()
    state = model.state_dict()
    assert list(state) == ["owner.fc1"] + [f"layers.{i}.scores" for i in range(3)]
    # One weight and three score tensors of 12 x 8 float32.
    assert sum(v.numel() * v.element_size() for v in state.values()) == 4 * 96 * 4
    assert [name for name, _ in model.named_buffers() if "bias" not in name] == ["owner.fc1"]


def halved(model):
    return model.half()


def moved(model):
    return model.to("cpu", torch.bfloat16)


def loaded(model):
    other = Stack(keep_ratio=0.3)
    other.load_state_dict(copy.deepcopy(model.state_dict()))
    return other


def assigned(model):
    other = Stack()
    other.load_state_dict(copy.deepcopy(model.state_dict()), assign=True)
    return other


@pytest.mark.parametrize("steps", [[halved], [moved], [copy.deepcopy], [loaded], [assigned]])
@pytest.mark.parametrize("then", [None, halved, copy.deepcopy])
def test_shared_weights_stay_one_storage(steps, then):
    original = Stack()
    original(torch.randn(2, 8))
    model = original
    for step in steps + ([then] if then else []):
        model = step(model)
    owner = model.owner.fc1
    assert [layer.frozen_weight.data_ptr() for layer in model.layers] == [owner.data_ptr()] * 3
    assert len({layer.scores.data_ptr() for layer in model.layers}) == 3
    if model is not original:
        assert owner.data_ptr() != original.owner.fc1.data_ptr()
    for layer in model.layers:
        assert layer.scores.dtype == torch.float32 and layer.weight.dtype == owner.dtype
        assert torch.equal(layer.weight, owner * layer.mask)


def test_a_copy_does_not_touch_the_original():
    model = Stack()
    x = torch.randn(2, 8)
    before = model(x)
    twin = copy.deepcopy(model)
    with torch.no_grad():
        for layer in twin.layers:
            layer.scores.copy_(torch.rand(12, 8))
    assert torch.equal(model(x), before) and not torch.equal(twin(x), before)


@pytest.mark.parametrize("dtype", [torch.half, torch.bfloat16])
def test_scores_stay_float32_bit_for_bit_and_so_does_their_gradient(dtype):
    layer = MaskedLinear(6, 4, seed=1)
    layer(torch.randn(2, 6)).sum().backward()
    scores, grad = layer.scores.detach().clone(), layer.scores.grad.clone()
    parameter = layer.scores
    layer.to(dtype)
    assert layer.scores is parameter and torch.equal(layer.scores, scores) and torch.equal(layer.scores.grad, grad)
    assert layer.frozen_weight.dtype == layer.bias.dtype == dtype
    layer.zero_grad()
    out = layer(torch.randn(2, 6, dtype=dtype))
    out.sum().backward()
    assert out.dtype == dtype and layer.scores.grad.dtype == torch.float32
    assert layer.float().frozen_weight.dtype == torch.float32 and layer.double().scores.dtype == torch.float64


def test_training_changes_the_mask_and_not_the_weight():
    layer = MaskedLinear(16, 16, 0.5, seed=1)
    before, mask = sha(layer.frozen_weight), layer.mask.clone()
    optimizer = torch.optim.Adam(layer.parameters(), lr=0.05)
    for _ in range(20):
        optimizer.zero_grad()
        layer(torch.randn(8, 16)).pow(2).mean().backward()
        optimizer.step()
    assert sha(layer.frozen_weight) == before == sha(MaskedLinear(16, 16, 0.5, seed=1).frozen_weight)
    assert not torch.equal(layer.mask, mask) and layer.mask.sum() == 128


def test_golden_bits():
    # Computed only by + - x / sqrt in a fixed order, and therefore the same everywhere. Checkpoints and exports rely on it.
    layer = MaskedLinear(4, 2, 0.5, seed=1, name="w", init="kaiming_uniform")
    assert torch.equal(layer.scores.detach(), torch.from_numpy(philox.uniform(1, "w.scores", (2, 4), 0.5)))
    assert sha(layer.frozen_weight) == "19bba6be9bcb50d4b067c7fcc2fff47e37324bcdf477909b0e71f325adaeb871"

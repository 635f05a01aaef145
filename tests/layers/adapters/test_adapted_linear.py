"""Adapters on a frozen linear layer: W + D and gradients by hand, and shared tensors."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from fairseq_reservoir.layers.adapters.adapted_linear import (
    AdaptedLinear,
    LowRank,
    ScaledProjections,
    SharedProjections,
)

OUT, IN, RANK = 24, 20, 2


def lora(linear, rank):
    return AdaptedLinear(linear, LowRank(linear.out_features, linear.in_features, rank))


def vera(linear, rank, shared=None):
    return AdaptedLinear(
        linear, ScaledProjections(linear.out_features, linear.in_features, rank, shared or SharedProjections())
    )


def frozen_linear(out_features=OUT, in_features=IN):
    return nn.Linear(in_features, out_features).requires_grad_(False)


def shared_by(layer):
    return getattr(layer.frozen_adapter, "_shared", ())


@torch.no_grad()
def randomized(layer):
    """Convert the layer to float64 and randomise its adapter."""
    for module in (layer.double(), *shared_by(layer)):
        for tensor in (*module.double().parameters(), *module.buffers()):
            tensor.normal_()
    return layer


@torch.no_grad()
def test_lora_by_hand():
    """alpha / r = 16 / 1; B A = (1, 2)^T (3, -1) = (3 -1; 6 -2); W = (1 0; 0 1): W + D = (49 -16; 96 -31)."""
    linear = frozen_linear(2, 2)
    linear.weight.copy_(torch.eye(2))
    linear.bias.copy_(torch.tensor([0.5, 0.0]))
    layer = lora(linear, rank=1)
    layer.frozen_adapter.A.copy_(torch.tensor([[3.0, -1.0]]))
    layer.frozen_adapter.B.copy_(torch.tensor([[1.0], [2.0]]))
    assert layer.weight.tolist() == [[49, -16], [96, -31]]
    assert layer(torch.tensor([1.0, 2.0])).tolist() == [49 - 32 + 0.5, 96 - 62]


@torch.no_grad()
def test_a_gain_by_hand():
    """g = 2: 2 W + D = (50 -16; 96 -30), with D as above."""
    linear = frozen_linear(2, 2)
    linear.weight.copy_(torch.eye(2))
    linear.bias.copy_(torch.tensor([0.5, 0.0]))
    layer = AdaptedLinear(linear, LowRank(2, 2, 1), scaled=True)
    assert layer.frozen_adapter.gain.tolist() == [1]
    layer.frozen_adapter.A.copy_(torch.tensor([[3.0, -1.0]]))
    layer.frozen_adapter.B.copy_(torch.tensor([[1.0], [2.0]]))
    layer.frozen_adapter.gain.fill_(2)
    assert layer.weight.tolist() == [[50, -16], [96, -30]]
    for apart in (False, True):
        layer.apart = apart
        assert layer(torch.tensor([1.0, 2.0])).tolist() == [50 - 32 + 0.5, 96 - 60]


@pytest.mark.parametrize("rank", [RANK, 10])
@pytest.mark.parametrize("read", ["forward", "weight"])
@pytest.mark.parametrize("bias", [True, False])
def test_the_gradient_of_a_gain_is_that_worked_by_hand(read, rank, bias):
    """With G = (dL/dy)^T x: dL/dg = sum_ij G_ij W_ij, and dL/dx = dL/dy (g W + D)."""
    linear = nn.Linear(IN, OUT, bias=bias).requires_grad_(False)
    layer = randomized(AdaptedLinear(linear, LowRank(OUT, IN, rank), scaled=True))
    x, upstream = torch.randn(7, IN, dtype=torch.float64), torch.randn(7, OUT, dtype=torch.float64)
    x.requires_grad_(True)
    y = layer(x) if read == "forward" else F.linear(x, layer.weight, layer.bias)
    y.backward(upstream)
    W, adapter = layer._parameters["weight"], layer.frozen_adapter
    close = {"rtol": 1e-12, "atol": 1e-12}
    torch.testing.assert_close(adapter.gain.grad[0], ((upstream.T @ x.detach()) * W).sum(), **close)
    torch.testing.assert_close(
        x.grad, upstream @ (adapter.gain * W + 16 / rank * adapter.B @ adapter.A).detach(), **close
    )
    assert W.grad is None


@torch.no_grad()
def test_vera_by_hand():
    """d = (2), A = (3 -1), B = (1, 2)^T, b = (1, -1): D = (1 * 1 * 2 * A; -1 * 2 * 2 * A) = (6 -2; -12 4)."""
    linear = frozen_linear(2, 2)
    linear.weight.copy_(torch.eye(2))
    linear.bias.zero_()
    layer = vera(linear, rank=1)
    A, B = shared_by(layer)[0].pair("2x2")
    A.copy_(torch.tensor([[3.0, -1.0]]))
    B.copy_(torch.tensor([[1.0], [2.0]]))
    layer.frozen_adapter.d.fill_(2.0)
    layer.frozen_adapter.b.copy_(torch.tensor([1.0, -1.0]))
    assert layer.weight.tolist() == [[7, -2], [-12, 5]]
    assert layer(torch.tensor([1.0, 2.0])).tolist() == [7 - 4, -12 + 10]


@pytest.mark.parametrize("kind", [lora, vera])
def test_begins_as_the_frozen_layer_bit_for_bit(kind):
    linear, x = frozen_linear(), torch.randn(3, 5, IN)
    layer = kind(linear, RANK)
    with torch.no_grad():
        for tensor in (layer.frozen_adapter.A,) if kind is lora else shared_by(layer)[0].buffers():
            tensor.normal_()
    assert layer.apart and torch.equal(layer(x), linear(x)) and torch.equal(layer.weight, linear.weight)
    if kind is vera:
        assert torch.equal(layer.frozen_adapter.d, torch.full((RANK,), 0.1))


@pytest.mark.parametrize("rank", [RANK, 10])
@pytest.mark.parametrize("read", ["forward", "weight"])
@pytest.mark.parametrize("kind", [lora, vera])
def test_gradients_are_those_worked_by_hand(kind, read, rank):
    """With G = dL/d(W + D) = (dL/dy)^T x.

    LoRA, s = 16 / r: dL/dB = s G A^T, dL/dA = s B^T G. VeRA: dL/db_i = sum_j G_ij (B diag(d) A)_ij and
    dL/dd_k = (B^T diag(b) G A^T)_kk.
    """
    layer = randomized(kind(frozen_linear(), rank))
    x, upstream = torch.randn(7, IN, dtype=torch.float64), torch.randn(7, OUT, dtype=torch.float64)
    assert layer.apart == (rank == RANK)  # 3 * 2 * 44 = 264 < 480 < 1320 = 3 * 10 * 44
    y = layer(x) if read == "forward" else F.linear(x, layer.weight, layer.bias)
    y.backward(upstream)
    G = upstream.T @ x
    adapter = layer.frozen_adapter
    if kind is lora:
        expected = {"B": 16 / rank * G @ adapter.A.T, "A": 16 / rank * adapter.B.T @ G}
    else:
        A, B = shared_by(layer)[0].pair(f"{OUT}x{IN}")
        expected = {
            "b": (G * (B @ torch.diag(adapter.d) @ A)).sum(dim=1),
            "d": (B.T @ torch.diag(adapter.b) @ G @ A.T).diagonal(),
        }
    found = {name: parameter.grad for name, parameter in adapter.named_parameters()}
    assert found.keys() == expected.keys()
    for name in expected:
        torch.testing.assert_close(found[name], expected[name].detach(), rtol=1e-12, atol=1e-12)
    assert layer._parameters["weight"].grad is None and layer.bias.grad is None


def test_one_pair_serves_all_layers_of_a_shape():
    shared = SharedProjections()
    first, second, other = (vera(frozen_linear(*shape), RANK, shared) for shape in ((OUT, IN), (OUT, IN), (IN, OUT)))
    assert shared.users == {"24x20": 2, "20x24": 1}
    assert {name: tuple(b.shape) for name, b in shared.named_buffers()} == {
        "A_24x20": (2, 20), "B_24x20": (24, 2), "A_20x24": (2, 24), "B_20x24": (20, 2),
    }  # fmt: skip
    assert list(first.state_dict()) == ["weight", "bias", "frozen_adapter.d", "frozen_adapter.b"]
    model = nn.ModuleList([first, second, other, shared])
    for changed in (model.half(), copy.deepcopy(model)):
        pairs = [changed[i].frozen_adapter._shared[0].pair("24x20")[0] for i in (0, 1)]
        assert pairs[0] is pairs[1] is changed[3].A_24x20 and pairs[0].dtype == torch.half


@pytest.mark.parametrize("kind", [lora, vera])
def test_merged_is_a_plain_layer_with_the_same_output(kind):
    layer, x = randomized(kind(frozen_linear(), RANK)), torch.randn(3, 5, IN, dtype=torch.float64)
    adapted = layer(x)
    merged = layer.merged()
    assert type(merged) is nn.Linear and list(merged.state_dict()) == ["weight", "bias"]
    torch.testing.assert_close(merged(x), adapted, rtol=1e-12, atol=1e-12)


def test_a_state_dict_without_it_is_completed_and_one_with_it_left_alone():
    layer = lora(frozen_linear(), RANK)
    plain = {"fc1.weight": layer._parameters["weight"], "fc1.bias": layer.bias}
    state = dict(plain)
    layer.upgrade_state_dict_named(state, "fc1")
    assert state.keys() == plain.keys() | {"fc1.frozen_adapter.A", "fc1.frozen_adapter.B"}
    part = plain | {"fc1.frozen_adapter.A": layer.frozen_adapter.A}
    layer.upgrade_state_dict_named(part, "fc1")
    assert "fc1.frozen_adapter.B" not in part

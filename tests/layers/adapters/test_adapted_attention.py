"""Self-attention with adapted projections equals fairseq's fused attention on W + D, without gradients of whole matrices."""

import copy

import pytest
import torch
from fairseq.modules import MultiheadAttention
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from fairseq_reservoir.layers.adapters.adapted_attention import AdaptedAttention
from fairseq_reservoir.layers.adapters.adapted_linear import AdaptedLinear, LowRank
from fairseq_reservoir.layers.replace import adopt

TIME, BATCH, DIM, HEADS, RANK = 5, 2, 16, 2, 2
PROJECTIONS = ("q_proj", "k_proj", "v_proj", "out_proj")
CAUSAL = torch.triu(torch.full((TIME, TIME), float("-inf")), 1)
MASKS = {
    "none": {},
    "padding": {"key_padding_mask": torch.tensor([[False] * TIME, [False] * 3 + [True] * 2])},
    "causal": {"attn_mask": CAUSAL},
    "padding, causal and boolean": {
        "key_padding_mask": torch.tensor([[True] + [False] * 4, [False] * TIME]).flip(1),
        "attn_mask": CAUSAL.isinf(),
    },
    "one for each head": {"attn_mask": CAUSAL.expand(BATCH * HEADS, TIME, TIME).clone()},
}


@pytest.fixture
def pair():
    """Attentions with frozen projections and random adapters: fused attention on W + D, and ours."""
    ours = MultiheadAttention(DIM, HEADS, self_attention=True).double().requires_grad_(False)
    for name in PROJECTIONS:
        linear = getattr(ours, name)
        adapted = AdaptedLinear(linear, LowRank(DIM, DIM, RANK).double())
        torch.nn.init.normal_(adapted.frozen_adapter.A)
        torch.nn.init.normal_(adapted.frozen_adapter.B, std=0.1)
        setattr(ours, name, adapted)
    fused = copy.deepcopy(ours)
    ours = adopt(AdaptedAttention, ours)
    assert all(getattr(ours, name).apart for name in PROJECTIONS)  # 3 * 2 * 32 = 192 < 256
    return fused, ours


def outputs(attention, x, **masks):
    masks = {name: mask.to(x.dtype) if mask.is_floating_point() else mask for name, mask in masks.items()}
    return attention(x, x, x, need_weights=False, **masks)[0]


@pytest.mark.parametrize("name", MASKS)
def test_is_the_fused_attention_with_the_sums(pair, name):
    x, upstream = torch.randn(2, TIME, BATCH, DIM, dtype=torch.float64)
    for attention in pair:
        attention.y = outputs(attention, x, **MASKS[name])
        attention.y.backward(upstream)
    fused, ours = pair
    torch.testing.assert_close(ours.y, fused.y, rtol=1e-10, atol=1e-10)
    for (name, expected), found in zip(fused.named_parameters(), ours.parameters(), strict=True):
        assert (expected.grad is None) == (found.grad is None) == ("frozen_adapter" not in name)
        if found.grad is not None:
            torch.testing.assert_close(found.grad, expected.grad, rtol=1e-10, atol=1e-10)


def test_the_attention_weights_and_the_cache_are_fairseqs(pair):
    x = torch.randn(TIME, BATCH, DIM, dtype=torch.float64)
    (expected, weights), (found, own_weights) = (attention(x, x, x) for attention in pair)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(own_weights, weights)
    state, causal = {}, outputs(pair[1], x, attn_mask=CAUSAL)
    steps = [
        pair[1](x[t : t + 1], x[t : t + 1], x[t : t + 1], incremental_state=state, need_weights=False)[0]
        for t in range(TIME)
    ]
    torch.testing.assert_close(
        torch.cat(steps), causal, rtol=1e-4, atol=1e-5
    )  # with a cache fairseq takes the softmax in float32


def test_dropout_is_that_of_the_fused_attention(pair):
    x, found = torch.randn(TIME, BATCH, DIM, dtype=torch.float64), []
    for attention in pair:
        attention.dropout_module.p = 0.5
        torch.manual_seed(1)
        found.append(outputs(attention, x))
    torch.testing.assert_close(*found, rtol=1e-10, atol=1e-10)
    assert not torch.allclose(found[0], outputs(pair[1].eval(), x))


def test_no_matrix_takes_a_gradient_as_a_whole(pair):
    """Backward pass for 10 tokens with frozen vectors.

    Each A (2, 16) has a gradient; each B has a gradient and one of its input; so have W and A of the output projection. With fused
    attention, each W + D has a gradient, and so have A and B of its D.
    """
    x, costs = torch.randn(TIME, BATCH, DIM, dtype=torch.float64), []
    for attention in pair:
        with sdpa_kernel(SDPBackend.MATH):
            value = outputs(attention, x).sum()
            with FlopCounterMode(display=False) as counter:
                value.backward()
        costs.append(counter.get_total_flops())
    words, low, whole = TIME * BATCH, RANK * DIM, DIM * DIM
    mixing = 4 * 2 * (BATCH * HEADS) * TIME * TIME * (DIM // HEADS)  # two gradients each of scores and of sums
    adapters = 4 * (3 * 2 * words * low)
    assert costs[1] == mixing + adapters + 2 * words * (whole + low)
    assert costs[0] == mixing + 4 * (2 * words * whole) + 2 * words * whole + 4 * 2 * (2 * RANK * whole)

"""Fast attention against fairseq's attention in training: values, gradients and masks, and the cases that fairseq's code handles."""

import copy
import itertools

import pytest
import torch
import torch.nn.functional as F
from fairseq.modules import MultiheadAttention

from fairseq_reservoir.layers.fast_dropout import fast_dropout
from fairseq_reservoir.speed.fast_attention import FastAttention, _softmax, attend, fast_attention, use_fast_attention

DIM, HEADS, TIME, SOURCE, BATCH = 8, 2, 5, 7, 3


def pair(dtype=torch.float32, **options):
    """Return fairseq's attention, and a fast attention with the same weights."""
    torch.manual_seed(0)
    slow = MultiheadAttention(DIM, HEADS, **options).to(dtype)
    for parameter in slow.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    fast = copy.deepcopy(slow)
    return slow, fast_attention(fast, weights_unread=True)


def forward_backward(attention, query, source, **options):
    query, source = query.clone().requires_grad_(), None if source is None else source.clone().requires_grad_()
    keys = query if source is None else source
    y, weights = attention(query, keys, keys, **options)
    (y * torch.linspace(-1, 1, y.numel()).view_as(y)).sum().backward()
    gradients = [p.grad for p in attention.parameters() if p.grad is not None]
    return y, weights, [query.grad, *([] if source is None else [source.grad]), *gradients]


def assert_equal(slow, fast, *inputs, rtol=1e-5, **options):
    expected, found = forward_backward(slow, *inputs, **options), forward_backward(fast, *inputs, **options)
    for a, b in [(expected[0], found[0]), *zip(expected[2], found[2], strict=True)]:
        # The gradient of the key bias is 0 except for rounding. It needs an absolute tolerance.
        assert (a - b).norm() <= rtol * (1 + a.norm())


padding = torch.tensor([[False] * 7, [False] * 5 + [True] * 2, [False] * 2 + [True] * 5])
future = torch.triu(torch.full((TIME, TIME), float("-inf")), 1)


@pytest.mark.parametrize("padded, causal", itertools.product([False, True], repeat=2))
def test_self_attention(padded, causal):
    options = {
        "key_padding_mask": padding[:, :TIME] if padded else None,
        "attn_mask": future if causal else None,
        "need_weights": False,
    }
    assert_equal(*pair(self_attention=True), torch.randn(TIME, BATCH, DIM), None, **options)


def test_queries_without_unmasked_keys():
    """Left padding of a decoder can only attend to padding. Its output is 0, and all gradients are finite."""
    left = torch.tensor([[False] * 5, [True] * 2 + [False] * 3, [True] * 4 + [False]])
    options = {"key_padding_mask": left, "attn_mask": future.double(), "need_weights": False}
    slow, fast = pair(torch.float64, self_attention=True)
    query = torch.randn(TIME, BATCH, DIM, dtype=torch.float64)
    assert_equal(slow, fast, query, None, rtol=1e-9, **options)
    assert forward_backward(slow, query, None, **options)[0].isfinite().all()
    mask = future.expand(BATCH, 1, TIME, TIME).masked_fill(left[:, None, None, :], -torch.inf)
    q, k, v = (torch.randn(BATCH, HEADS, TIME, 4, requires_grad=True) for _ in range(3))
    y = attend(q, k, v, mask, dropout=0.1)
    y.sum().backward()
    assert y[1, :, :2].eq(0).all() and all(x.grad.isfinite().all() for x in (q, k, v))


def test_attention_with_quant_noise_is_not_replaced():
    model = torch.nn.ModuleList([MultiheadAttention(DIM, HEADS, q_noise=noise, qn_block_size=2) for noise in (0, 0.5)])
    use_fast_attention(model, weights_unread=True)
    assert [isinstance(module, FastAttention) for module in model] == [True, False]


@pytest.mark.parametrize("padded", [False, True])
def test_cross_attention(padded):
    slow, fast = pair(kdim=6, vdim=6, encoder_decoder_attention=True)
    inputs = torch.randn(TIME, BATCH, DIM), torch.randn(SOURCE, BATCH, 6)
    options = {
        "key_padding_mask": padding if padded else None,
        "static_kv": True,
        "need_weights": True,
        "need_head_weights": True,
    }
    assert_equal(slow, fast, *inputs, **options)
    assert (
        forward_backward(slow, *inputs, **options)[1] is not None
        and forward_backward(fast, *inputs, **options)[1] is None
    )


@pytest.mark.parametrize("frozen", [("q_proj",), ("k_proj", "v_proj"), ("q_proj", "k_proj", "v_proj")], ids=str)
def test_frozen_projections_get_no_gradient(frozen):
    slow, fast = pair(self_attention=True)
    for attention, name in itertools.product((slow, fast), frozen):
        getattr(attention, name).requires_grad_(False)
    assert_equal(slow, fast, torch.randn(TIME, BATCH, DIM), None, need_weights=False)
    assert all(getattr(fast, name).weight.grad is None for name in frozen)


@pytest.mark.parametrize("causal", [False, True])
def test_bfloat16_on_a_cpu_is_close_to_float32(causal):
    slow, fast = pair(torch.bfloat16, self_attention=True)
    exact = copy.deepcopy(slow).float()
    x, mask = torch.randn(TIME, BATCH, DIM).bfloat16(), future if causal else None
    options = {"key_padding_mask": padding[:, :TIME], "need_weights": False}
    exact_results = forward_backward(exact, x.float(), None, attn_mask=mask, **options)
    for attention in (slow, fast):
        found = forward_backward(attention, x, None, attn_mask=mask if mask is None else mask.bfloat16(), **options)
        for a, b in [(exact_results[0], found[0]), *zip(exact_results[2], found[2])]:
            assert (a - b).norm() < 0.05 * (1 + a.norm())


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("length", [1, 2, 15, 16, 17, 63, 64, 65])
def test_softmax_and_its_gradient_for_rows_of_any_length(length, dtype):
    """Padded short rows and rows computed in float32 equal the softmax in float64 up to the rounding of dtype."""
    torch.manual_seed(length)
    x = (2 * torch.randn(3, 2, 5, length)).to(dtype).requires_grad_()
    x.data[0, ..., length // 2 + 1 :] = -torch.inf
    g = torch.randn(3, 2, 5, length).to(dtype)
    y = _softmax(x)
    y.backward(g)
    e = (x.double() - x.double().amax(-1, keepdim=True)).exp()
    p = e / e.sum(-1, keepdim=True)
    x_gradient = p * (g - (p * g).sum(-1, keepdim=True))
    tolerance = 4 * torch.finfo(dtype).eps
    assert y.shape == x.shape and y.dtype == x.grad.dtype == dtype
    torch.testing.assert_close(y.double(), p, rtol=tolerance, atol=tolerance)
    torch.testing.assert_close(x.grad.double(), x_gradient, rtol=tolerance, atol=4 * tolerance)


def test_dropout_is_applied_to_the_attention_weights():
    torch.manual_seed(1)
    q, k, v = torch.randn(3, 2, HEADS, TIME, 4).unbind()
    torch.manual_seed(2)
    found = attend(q, k, v, None, 0.5)
    torch.manual_seed(2)
    weights = fast_dropout(torch.softmax(q @ k.transpose(-1, -2) / 2, -1), 0.5)
    torch.testing.assert_close(found, weights @ v)
    torch.testing.assert_close(attend(q, k, v, None, 0.0), F.scaled_dot_product_attention(q, k, v))


def test_evaluation_is_bit_identical_to_fairseq():
    slow, fast = pair(encoder_decoder_attention=True)
    slow.eval(), fast.eval()
    query, source = torch.randn(TIME, BATCH, DIM), torch.randn(SOURCE, BATCH, DIM)
    for expected, found in zip(
        slow(query, source, source, static_kv=True), fast(query, source, source, static_kv=True)
    ):
        assert expected.equal(found)
    assert list(slow.state_dict()) == list(fast.state_dict())


def test_attention_weights_are_returned_if_they_are_read():
    slow, _ = pair(encoder_decoder_attention=True)
    fast = fast_attention(copy.deepcopy(slow), weights_unread=False)
    query, source = torch.randn(TIME, BATCH, DIM), torch.randn(SOURCE, BATCH, DIM)
    assert slow(query, source, source, static_kv=True)[1].equal(fast(query, source, source, static_kv=True)[1])


def test_a_subclass_is_not_replaced():
    class Twice(MultiheadAttention):
        def forward(self, *args, **kwargs):
            y, weights = super().forward(*args, **kwargs)
            return 2 * y, weights

    assert fast_attention(Twice(DIM, HEADS, self_attention=True), weights_unread=True) is None


def test_a_copy_of_a_fast_attention_is_fast():
    _, fast = pair(self_attention=True)
    again = fast_attention(copy.deepcopy(fast), weights_unread=False)
    assert type(again) is type(fast) and type(fast).__name__ == "MultiheadAttention" and fast.weights_unread


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("allowed", [True, False])
def test_cudnn_attention_is_disabled_on_a_gpu(monkeypatch, training, allowed):
    """Meta tensors stand for tensors on a GPU: torch's attention computes only their shapes."""
    seen, kernel = [], F.scaled_dot_product_attention

    def record_setting(*inputs, **options):
        seen.append(torch.backends.cuda.cudnn_sdp_enabled())
        return kernel(*inputs, **options)

    monkeypatch.setattr(F, "scaled_dot_product_attention", record_setting)
    before = torch.backends.cuda.cudnn_sdp_enabled()
    torch.backends.cuda.enable_cudnn_sdp(allowed)
    try:
        _, fast = pair(self_attention=True)
        x = torch.randn(TIME, BATCH, DIM, device="meta")
        y, _ = fast.to("meta").train(training)(x, x, x, need_weights=False)
        assert y.shape == x.shape and seen == [False]
        assert torch.backends.cuda.cudnn_sdp_enabled() == allowed
        with pytest.raises((RuntimeError, AssertionError)):
            fast(x[:, :, 1:], x, x, need_weights=False)
        assert torch.backends.cuda.cudnn_sdp_enabled() == allowed
    finally:
        torch.backends.cuda.enable_cudnn_sdp(before)


def test_the_cudnn_setting_is_not_changed_on_a_cpu(monkeypatch):
    def fail(*_inputs, **_options):
        raise AssertionError("enable_cudnn_sdp was called")

    monkeypatch.setattr(torch.backends.cuda, "enable_cudnn_sdp", fail)
    _, fast = pair(self_attention=True)
    x = torch.randn(TIME, BATCH, DIM)
    fast.train()(x, x, x, need_weights=False)

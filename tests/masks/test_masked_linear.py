"""Masked linear layer by itself and in fairseq's attention."""

import pytest
import torch
import torch.nn.functional as F

from fairseq_reservoir.masks.masked_linear import MaskedLinear


def reverse_ranking(module):
    """Change all scores so that masks keep exactly the other entries, at keep ratio 0.5."""
    with torch.no_grad():
        for scores in module.parameters():
            scores.copy_(scores.sign() * (1 - scores.abs()))


def test_forward():
    layer, x = MaskedLinear(3, 4, 0.5), torch.randn(2, 5, 3)
    assert torch.equal(layer(x), F.linear(x, layer.frozen_weight * layer.mask))


def test_bias_is_a_buffer_of_zeros_that_is_not_stored():
    layer = MaskedLinear(3, 4)
    assert layer.bias.tolist() == [0] * 4 and "bias" in dict(layer.named_buffers()) and "bias" not in layer.state_dict()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_folded(dtype):
    layer, x = MaskedLinear(3, 4, 0.5).to(dtype).eval(), torch.randn(2, 3, dtype=dtype)
    folded = layer.folded()
    assert torch.equal(folded(x), layer(x)) and folded.weight.requires_grad
    reverse_ranking(layer)
    assert not torch.equal(folded(x), layer(x)) and not folded.training


@pytest.fixture
def attention():
    from fairseq.modules import MultiheadAttention

    def build(**options):
        module = MultiheadAttention(16, 2, **options)
        for i, name in enumerate(("q_proj", "k_proj", "v_proj", "out_proj")):
            setattr(module, name, MaskedLinear(16, 16, 0.5, init="signed_constant", seed=i))
        return module

    return build


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("kind", ["self_attention", "encoder_decoder_attention"])
def test_fairseqs_fused_attention_sees_the_masks(attention, monkeypatch, kind, training):
    fused, calls = F.multi_head_attention_forward, []
    monkeypatch.setattr(F, "multi_head_attention_forward", lambda *a, **k: calls.append(1) or fused(*a, **k))
    module = attention(**{kind: True}).train(training)
    x, memory = torch.randn(5, 3, 16), torch.randn(4, 3, 16)
    memory = x if kind == "self_attention" else memory
    y, _ = module(x, memory, memory)
    y.pow(2).sum().backward()
    assert calls and all((p.grad != 0).any() for p in module.parameters())
    reverse_ranking(module)
    assert (module(x, memory, memory)[0] - y).abs().max() > 0.1


def test_incremental_decoding_equals_the_fused_path(attention):
    module, x, state = attention(self_attention=True).eval(), torch.randn(5, 3, 16), {}
    future = torch.full((5, 5), -torch.inf).triu(1)
    steps = torch.cat([module(x[i : i + 1], x[i : i + 1], x[i : i + 1], incremental_state=state)[0] for i in range(5)])
    torch.testing.assert_close(steps, module(x, x, x, attn_mask=future)[0], rtol=1e-4, atol=1e-5)
    reverse_ranking(module)
    assert (module(x[:1], x[:1], x[:1], incremental_state={})[0] - steps[:1]).abs().max() > 0.1


def test_a_transposed_batch_is_one_product_also_without_gradients():
    layer, x = MaskedLinear(3, 5, seed=1).eval(), torch.randn(4, 2, 3).transpose(0, 1)
    with torch.no_grad(), torch.profiler.profile() as profile:
        y = layer(x)
    assert y.shape == (2, 4, 5) and torch.allclose(y, x @ layer.weight.T)
    assert "aten::bmm" not in {event.key for event in profile.key_averages()}
    with torch.no_grad(), torch.profiler.profile() as profile:
        torch.nn.functional.linear(x, layer.weight)
    assert "aten::bmm" in {event.key for event in profile.key_averages()}  # torch's own choice

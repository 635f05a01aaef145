"""Attention to the source in a decoder's C."""

import math

import pytest
import torch

from fairseq_reservoir.layers.base import Context
from fairseq_reservoir.layers.cross_attention import CrossAttention
from tests.support.building import slot_config

MEMORY_MASK = torch.tensor([[0, 0, 0, 0, 0], [1, 1, 0, 0, 0]]).bool()


@pytest.fixture
def layer(monkeypatch):
    # fairseq's attention computes its softmax in float32, even in a float64 model.
    monkeypatch.setattr("fairseq.utils.softmax", lambda x, dim, onnx_trace=False: x.softmax(dim))
    return CrossAttention(slot_config(memory_dim=6)).double()


def inputs():
    generator = torch.Generator().manual_seed(2)
    x = torch.randn(3, 2, 8, dtype=torch.float64, generator=generator)
    return x, torch.randn(5, 2, 6, dtype=torch.float64, generator=generator)


def slow_attention(attention, query, memory):
    """Output for one token (8) and one source sentence (time, 6), and the weight of each head and source token."""
    q, k, v = attention.q_proj(query), attention.k_proj(memory), attention.v_proj(memory)
    outputs, weights = [], []
    for head in (slice(0, 4), slice(4, 8)):
        weights.append((k[:, head] @ q[head] / math.sqrt(4)).softmax(dim=0))
        outputs.append(weights[-1] @ v[:, head])
    return attention.out_proj(torch.cat(outputs)), torch.stack(weights)


@torch.no_grad()
def test_equals_slow_attention_over_the_words_of_the_source(layer):
    x, memory = inputs()
    context = Context(memory=memory, memory_padding_mask=MEMORY_MASK, need_head_weights=True)
    y = layer(x, context)
    for sentence, first in enumerate((0, 2)):
        for word in range(3):
            output, weights = slow_attention(
                layer.encoder_attn, layer.layer_norm(x[word, sentence]), memory[first:, sentence]
            )
            assert (y[word, sentence] - x[word, sentence] - output).abs().max() < 1e-12
            assert (context.attn[:, sentence, word, first:] - weights).abs().max() < 1e-12
            assert (context.attn[:, sentence, word, :first] == 0).all()


@torch.no_grad()
def test_keys_and_values_are_projected_once(layer):
    x, memory = inputs()
    expected = layer(x, Context(memory=memory, memory_padding_mask=MEMORY_MASK))
    projected = []
    layer.encoder_attn.k_proj.register_forward_hook(lambda *_: projected.append(1))
    state = {}
    for word in range(3):
        context = Context(memory=memory, memory_padding_mask=MEMORY_MASK, incremental_state=state)
        assert (layer(x[word : word + 1], context) - expected[word : word + 1]).abs().max() < 1e-12
    assert len(projected) == 1


def test_attention_weights_in_evaluation_unless_generation_turns_them_off(layer):
    x, memory = inputs()

    def weights():
        context = Context(memory=memory)
        layer(x, context)
        return context.attn

    assert weights() is None
    layer.eval()
    assert weights().shape == (2, 3, 5)
    layer.make_generation_fast_(need_attn=False)
    assert weights() is None

"""Chain of residual sublayers that all kinds share."""

import pytest
import torch

from fairseq_reservoir.layers import BUILDERS, build_slot
from fairseq_reservoir.layers.base import Context, Sublayer
from fairseq_reservoir.plan.kinds import all_kinds, kind_of, letters_where
from tests.support.building import slot_config


class Double(Sublayer):
    """f(x) = 2x"""

    def transform(self, x, context):
        return 2 * x


@pytest.mark.parametrize(
    "norm_first, expected",
    [
        # LN of (1, 3), mean 2, deviation 1, is (-1, 1): (1, 3) + 2 (-1, 1)
        (True, [-1.0, 5.0]),
        # LN of (1, 3) + 2 (1, 3) = (3, 9), mean 6, deviation 3
        (False, [-1.0, 1.0]),
    ],
)
def test_layernorm_before_and_after(norm_first, expected):
    layer = Double(slot_config(embed_dim=2, norm_first=norm_first)).double()
    y = layer(torch.tensor([[[1.0, 3.0]]], dtype=torch.float64), Context())
    assert torch.allclose(y, torch.tensor(expected, dtype=torch.float64), atol=2e-5)  # LayerNorm's epsilon of 1e-5


def test_dropout_is_of_the_function_not_of_the_residual():
    layer = Double(slot_config(embed_dim=4, dropout=0.5))
    x = torch.arange(4.0).expand(50, 1, 4)
    kept, dropped = x + 2 * 2 * layer.layer_norm(x), x
    y = layer(x, Context())
    assert torch.all(torch.isclose(y, kept) | torch.isclose(y, dropped))
    assert not torch.allclose(y, kept) and not torch.allclose(y, dropped)
    assert torch.allclose(layer.eval()(x, Context()), x + 2 * layer.layer_norm(x))


def test_a_sublayer_without_a_function():
    with pytest.raises(NotImplementedError, match="Sublayer"):
        Sublayer(slot_config())(torch.zeros(1, 1, 8), Context())


def test_every_kind_of_the_layer_plans_is_there():
    assert set(BUILDERS) == {kind.letter for kind in all_kinds() if not kind.fairseqs}


@pytest.mark.parametrize("kind", sorted(BUILDERS))
def test_an_encoder_layer_is_called_as_fairseq_does(kind):
    y = build_slot(kind, "encoder", slot_config())(torch.randn(5, 3, 8), encoder_padding_mask=None)
    assert y.shape == (5, 3, 8)


@pytest.mark.parametrize(
    "kind", sorted({kind_of(letter).letter for letter in letters_where("decoder", fairseqs=False)})
)
@pytest.mark.parametrize("memory_dim", [0, 8])
def test_a_decoder_layer_is_called_as_fairseq_does(kind, memory_dim):
    memory = torch.randn(4, 3, memory_dim) if memory_dim else None
    layer = build_slot(kind, "decoder", slot_config(memory_dim=memory_dim))
    y, attention, state = layer(torch.randn(5, 3, 8), memory, need_attn=True, need_head_weights=True)
    assert y.shape == (5, 3, 8) and state is None
    # One weight per head, sentence, token and source token, if there is attention to the source.
    assert attention is None if not (kind_of(kind).sees_source and memory_dim) else attention.shape == (2, 3, 5, 4)


def test_the_name_of_the_attention_to_the_source_is_taken(monkeypatch):
    """No letter freezes a sublayer with this name, so any other sublayer there would silently stay trained."""
    monkeypatch.setitem(BUILDERS, "Y", lambda config, stack: {"cross": Double(config)})
    with pytest.raises(ValueError, match="^Y: a sublayer named 'cross' is always trained"):
        build_slot("Y", "encoder", slot_config())

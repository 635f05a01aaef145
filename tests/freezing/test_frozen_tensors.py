"""The tensors that each layer letter freezes, and dropout inside frozen layers."""

import pytest
import torch
from fairseq.modules.fairseq_dropout import FairseqDropout

from fairseq_reservoir.plan.kinds import kind_of
from tests.support.building import build
from tests.support.letters import RESERVOIRS, TRAINED, everywhere, named


def trained_names(model, path):
    """Return the names of the trained tensors of a layer, relative to the layer."""
    layer = model.get_submodule(path)
    return {name for name, p in layer.named_parameters() if p.requires_grad}


@pytest.mark.parametrize("letter", named(RESERVOIRS["encoder"]))
def test_capital_letters_freeze_a_whole_encoder_layer(letter):
    model = build(f"L{letter}")
    assert trained_names(model, "encoder.layers.1") == set()
    assert len(trained_names(model, "encoder.layers.0")) == 16  # six matrices, six biases, two LayerNorms


@pytest.mark.parametrize("letter", named(TRAINED["encoder"]))
def test_small_letters_train_the_same_tensors(letter):
    small, capital = build(f"L{letter}"), build(f"L{kind_of(letter).frozen_letter}")
    assert trained_names(small, "encoder.layers.1") == {
        name for name, _ in capital.encoder.layers[1].named_parameters()
    }


def test_cross_attention_in_decoders():
    model = build("L", "LTFC")
    assert len(trained_names(model, "decoder.layers.0")) == 26
    assert trained_names(model, "decoder.layers.1") == trained_names(model, "decoder.layers.2") == set()
    assert not any("attn" in name for name, _ in model.decoder.layers[2].named_parameters())
    parts = [f"encoder_attn.{part}_proj.{kind}" for part in ("q", "k", "v", "out") for kind in ("weight", "bias")]
    assert trained_names(model, "decoder.layers.3") == {
        f"cross.{name}" for name in (*parts, "layer_norm.weight", "layer_norm.bias")
    }


def test_train_layernorm():
    model = build(*map("".join, RESERVOIRS.values()), reservoir_train_layernorm=True)
    for entry in model.slot_table.entries:
        if ".layers." in entry.name and ".cross." not in entry.name:
            assert model.get_parameter(entry.name).requires_grad == ("layer_norm" in entry.name), entry.name


@pytest.mark.parametrize("stack, letter", everywhere(RESERVOIRS))
@pytest.mark.parametrize("no_dropout", [False, True])
def test_dropout_inside_frozen_layers(stack, letter, no_dropout):
    model = build(
        **{stack: f"L{letter}"},
        dropout=0.3,
        attention_dropout=0.3,
        activation_dropout=0.3,
        reservoir_no_dropout=no_dropout,
    )
    ordinary, reservoir = getattr(model, stack).layers
    x, memory = torch.randn(5, 2, 8), torch.randn(4, 2, 8)

    def run(layer):
        return layer(x, None) if stack == "encoder" else layer(x, memory)[0]

    trains_cross_attention = stack == "decoder" and kind_of(letter).sees_source and not kind_of(letter).fairseqs
    assert run(reservoir).equal(run(reservoir)) == (no_dropout and not trains_cross_attention)
    assert not run(ordinary).equal(run(ordinary))
    model.eval()
    assert run(reservoir).equal(run(reservoir))


def test_the_trained_cross_attention_keeps_its_dropout():
    layer = build("L", "C", dropout=0.3, attention_dropout=0.2, reservoir_no_dropout=True).decoder.layers[0]
    rates = {name: module.p for name, module in layer.named_modules() if isinstance(module, FairseqDropout)}
    assert {name: p for name, p in rates.items() if p} == {
        "cross.dropout_module": 0.3,
        "cross.encoder_attn.dropout_module": 0.2,
    }


@pytest.mark.parametrize("letter", named(TRAINED["encoder"]))
def test_trained_layers_keep_their_dropout(letter):
    layer = build(letter, dropout=0.3, reservoir_no_dropout=True).encoder.layers[0]
    x = torch.randn(5, 2, 8)
    assert not layer(x).equal(layer(x))

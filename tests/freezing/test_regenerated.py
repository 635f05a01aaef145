"""Models that draw the random tensors of a layer when it runs: the bits of the stored model, and one layer in memory."""

import logging

import pytest
import torch

from fairseq_reservoir.errors import InputError
from fairseq_reservoir.random_tensors.recipe import Recipe
from tests.support.building import SIZES, build, build_lm, logits, pad, sentences, shift
from tests.support.letters import FROZEN, everywhere

SOURCE, TARGET = pad(sentences(5, 3)), pad(sentences(4, 6, seed=2))
TIED = {"share_all_embeddings": True}


def ready(make=build, regenerate=True, convert=lambda model: model, **options):
    model = convert(make(regenerate_weights=regenerate, **options).eval())
    model.make_generation_fast_()
    return model


@torch.no_grad()
def answers(model):
    return logits(model, SOURCE, shift(TARGET)) if hasattr(model, "encoder") else model(SOURCE)[0]


def values(model):
    """Number of values in memory, with tied tensors counted once."""
    return sum(tensor.numel() for tensor in {id(t): t for t in (*model.parameters(), *model.buffers())}.values())


def assert_same(make=build, **options):
    """Assert equal bits in two batches, and return the models with drawn and with stored tensors."""
    models = [ready(make, flag, **options) for flag in (True, False)]
    for _ in range(2):
        first, second = map(answers, models)
        assert first.equal(second)
    return models


@pytest.mark.parametrize("stack, letter", everywhere(FROZEN))
def test_every_frozen_kind_has_the_same_bits_and_one_layer_in_memory(stack, letter):
    drawn, stored = assert_same(**{stack: f"L{letter * 3}"})
    released = tuple(f"{stack}.layers.{depth}." for depth in (1, 2))  # the last layer is still in memory
    frozen = [entry for entry in stored.slot_table.entries if not entry.trained and entry.name.startswith(released)]
    assert values(stored) - values(drawn) == sum(entry.size for entry in frozen) > 0


@pytest.mark.parametrize("options", [
    {"freeze": "emb", "frozen_init": "orthogonal"},
    {"freeze": "emb", "frozen_init": "signed_constant", **TIED},
    {"freeze": "att,ffn", "frozen_init": "glorot"},
    {"freeze": "encoder.ffn,decoder.layers.0.cross_att", "frozen_init": "zero"},
    {"freeze_except": "ln,bias", "frozen_init": "kaiming_uniform", **TIED},
    {"encoder": "LTL", "frozen_dtype": "bf16"},
    {"encoder": "TLT", "decoder": "T", "fast": True},
    {"freeze": "ffn", "frozen_init": "orthogonal", "arch": "frozen_transformer", **SIZES, "encoder_layers": 2, "decoder_layers": 2},
], ids=str)  # fmt: skip
def test_frozen_components_have_the_same_bits(options):
    _, stored = assert_same(**options)
    assert values(ready(**options)) < values(stored)


@pytest.mark.parametrize("options", [{"plan": "TFL"}, {"freeze": "emb", "frozen_init": "glorot"}], ids=str)
def test_language_models_have_the_same_bits(options):
    _, stored = assert_same(build_lm, **options)
    assert values(ready(build_lm, **options)) < values(stored)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_conversion_before_and_after_and_between_batches(dtype):
    before = [answers(ready(build, flag, lambda m: m.to(dtype), encoder="TTL")) for flag in (True, False)]
    after = [answers(ready(build, flag, encoder="TTL").to(dtype)) for flag in (True, False)]
    model = ready(encoder="TTL")
    answers(model)
    assert before[0].dtype == dtype and before[0].equal(before[1]) and after[0].equal(after[1])
    assert answers(model.to(dtype)).equal(after[0])


def test_a_layer_is_drawn_once_until_another_one_runs(monkeypatch):
    model, drawn, draw = ready(encoder="LTTL", decoder="LF"), [], Recipe.draw
    monkeypatch.setattr(Recipe, "draw", lambda recipe, seed: drawn.append(recipe.name) or draw(recipe, seed))
    encoder_out = model.encoder(SOURCE)
    for _ in range(3):  # the decoder has one frozen layer
        model.decoder(shift(TARGET), encoder_out)
    places = [".".join(name.split(".")[:3]) for name in drawn]
    assert list(dict.fromkeys(places)) == ["encoder.layers.1", "encoder.layers.2", "decoder.layers.1"]
    assert len(drawn) == len(set(drawn))


def test_tied_embeddings_are_drawn_once_for_input_and_output(monkeypatch):
    model, drawn, draw = ready(freeze="emb", frozen_init="glorot", **TIED), [], Recipe.draw
    monkeypatch.setattr(Recipe, "draw", lambda recipe, seed: drawn.append(recipe.name) or draw(recipe, seed))
    answers(model)
    assert len(drawn) == 1


def test_tensors_that_no_seed_gives_are_stored(caplog):
    model = build(encoder="LTTL", regenerate_weights=True, freeze="decoder.ffn").eval()
    with torch.no_grad():
        model.encoder.layers[1].fc1.weight[0, 0] += 1
    expected = answers(model)
    with caplog.at_level(logging.INFO, logger="fairseq_reservoir.freezing.regenerated"):
        model.make_generation_fast_()
    assert answers(model).equal(expected) and model.encoder.layers[1].fc1.weight.numel()
    (line,) = caplog.messages
    assert line.startswith(
        "--regenerate-weights: these frozen tensors are stored, because they cannot be drawn from a seed: decoder.layers.0.fc1.bias, "
    )


def test_merged_adapters_are_stored():
    options = {"freeze": "ffn", "frozen_init": "glorot", "frozen_adapter": "lora"}
    drawn, stored = ready(**options), ready(regenerate=False, **options)
    assert answers(drawn).equal(answers(stored))


def test_a_model_without_random_tensors_is_refused():
    with pytest.raises(
        InputError, match="^--regenerate-weights .*: no tensor of this model is drawn from a seed; remove"
    ):
        ready(freeze="ffn")

"""Models prepared for inference: folded, and with random weights that are regenerated when a layer runs."""

import gc

import pytest
import torch

from fairseq_reservoir.masks.masked_weight import masked_modules
from fairseq_reservoir.masks.regenerated import RegeneratedEmbedding, RegeneratedLinear
from tests.support.building import build_supermask, logits, pad, sentences, shift
from tests.support.commands import error_of

SOURCE, TARGET = pad(sentences(5, 3)), pad(sentences(4, 6, seed=2))
CHOICES = [
    {"mask_kind": "signed", "mask_coats": "0.3,0.1", "share_decoder_input_output_embed": False},
    {"mask_pin": 0.3, "share_all_embeddings": True},
    {"mask_random": True, "mask_init_weights": "kaiming_uniform"},
    {"mask_scope": "global", "mask_share": "none", "mask_init_weights": "kaiming_normal"},
    {"mask_init_weights": "paper_code", "encoder_embed_dim": 12, "decoder_embed_dim": 12},
    {"mask_embeddings": "trained", "mask_layernorm": "plain"},
    {"mask_embeddings": "8", "share_decoder_input_output_embed": False},
]


def ready(convert=lambda model: model, **choices):
    model = convert(build_supermask(**choices).eval())
    model.make_generation_fast_()
    return model


@torch.no_grad()
def answers(model):
    return logits(model, SOURCE, shift(TARGET))


def weights(model):
    """All matrices that a layer of the model uses, stored or regenerated."""
    linear = (RegeneratedLinear, torch.nn.Linear, RegeneratedEmbedding, torch.nn.Embedding)
    return {name: module.weight.detach() for name, module in model.named_modules() if isinstance(module, linear)}


def assert_same(regenerated, folded):
    """Assert equal bits of weights. Outputs may differ in rounding, because CPUs sum rows of a batch differently."""
    ours, theirs = weights(regenerated), weights(folded)
    assert len(ours) > 20 and ours.keys() == theirs.keys()
    assert all(ours[name].equal(theirs[name]) for name in ours)
    torch.testing.assert_close(answers(regenerated), answers(folded), rtol=0, atol=1e-5)


@pytest.mark.parametrize("choices", CHOICES, ids=str)
def test_outputs_are_those_of_folded_masks(choices):
    assert_same(ready(regenerate_weights=True, **choices), ready(**choices))


@pytest.mark.parametrize("init", [pytest.param("signed_constant", marks=pytest.mark.slow), "kaiming_uniform"])
def test_half_precision_before_and_after(init):
    kind = torch.bfloat16
    choices = {"mask_init_weights": init, "mask_coats": "0.2"}
    before = [answers(ready(lambda m: m.to(kind), regenerate_weights=flag, **choices)) for flag in (True, False)]
    after = [answers(ready(regenerate_weights=flag, **choices).to(kind)) for flag in (True, False)]
    assert before[0].dtype == kind and before[0].equal(before[1]) and after[0].equal(after[1])


def test_weights_trained_in_half_precision_are_rounded_again():
    def rounded(model):
        return model.half().float()

    choices = {"mask_init_weights": "kaiming_uniform"}
    regenerated = ready(rounded, regenerate_weights=True, **choices)
    assert_same(regenerated, ready(rounded, **choices))
    assert isinstance(regenerated.encoder.layers[0].fc1, RegeneratedLinear)


def float_tensors_of_shape(*shape):
    gc.collect()
    found = (o for o in gc.get_objects() if isinstance(o, torch.Tensor))
    return [t for t in found if tuple(t.shape) == shape and t.is_floating_point()]


def test_only_bits_are_held():
    # Only matrices have these sizes: 24 x 40 in a layer, and 20 tokens.
    sizes = {"encoder_embed_dim": 40, "decoder_embed_dim": 40, "encoder_ffn_embed_dim": 24, "decoder_ffn_embed_dim": 24}
    model = ready(regenerate_weights=True, **sizes)
    answers(model)
    assert not float_tensors_of_shape(24, 40) and not float_tensors_of_shape(20, 40)
    # Bytes of the encoder: 4 attention matrices of 40 x 40 and 2 of 24 x 40, (4 x 200 + 2 x 120) per layer, 3 layers. Decoder:
    # 8 x 200 + 2 x 120, 2 layers; two tables of 20 x 40.
    packed = sum(buffer.numel() for name, buffer in model.named_buffers() if name.endswith("packed"))
    assert packed == 3 * 1040 + 2 * 1840 + 2 * 100
    folded = ready(**sizes)
    assert len(float_tensors_of_shape(24, 40)) == 5  # one fc1 per layer, without its random weight
    assert not list(folded.encoder.random_layer.buffers())


def test_one_drawn_layer_is_cached_at_a_time(monkeypatch):
    from fairseq_reservoir.random_tensors.recipe import Recipe

    model, drawn, draw = ready(regenerate_weights=True, mask_init_weights="kaiming_uniform"), [], Recipe.draw
    monkeypatch.setattr(Recipe, "draw", lambda recipe, seed: drawn.append(recipe.name) or draw(recipe, seed))
    answers(model)
    # six matrices for the three layers of the encoder, ten for the two of the decoder
    assert [name.split(".")[0] for name in drawn] == ["encoder"] * 6 + ["decoder"] * 10
    assert not any(layer.fc1.random.numel() for layer in model.encoder.layers)
    # The two layers of the decoder share one random layer, and the second one ran last.
    assert not model.decoder.layers[0].fc1.random.numel() and model.decoder.layers[1].fc1.random.numel()


def test_a_model_that_moves_draws_its_layer_again_on_its_device():
    """``meta`` stands in for a GPU. Matrices cached on the CPU would be multiplied by masks on the GPU."""
    model = ready(regenerate_weights=True, mask_init_weights="kaiming_uniform")
    layer = model.decoder.layers[0].fc1
    drawn = layer.weight
    model.to("meta")
    assert layer.weight.is_meta and drawn.device.type == "cpu"


def test_a_model_that_is_converted_after_a_batch():
    """The matrices of the last layer are in memory then. They must not be rounded before they are multiplied by several coats."""
    choices = {"mask_init_weights": "kaiming_uniform", "mask_coats": "0.2"}
    models = [ready(regenerate_weights=flag, **choices) for flag in (True, False)]
    first, second = [answers(model) is not None and answers(model.bfloat16()) for model in models]
    assert first.equal(second)


def test_weights_that_cannot_be_drawn_again_are_folded():
    model = build_supermask(regenerate_weights=True).eval()
    model.encoder.embed_tokens.frozen_weight[7] = 0.5  # like vectors from a file
    model.make_generation_fast_()
    assert isinstance(model.encoder.embed_tokens, torch.nn.Embedding) and isinstance(
        model.decoder.embed_tokens, RegeneratedEmbedding
    )
    assert not masked_modules(model)


def test_a_shared_table_stays_one():
    for flag in (True, False):
        model = ready(regenerate_weights=flag, share_all_embeddings=True)
        assert model.encoder.embed_tokens is model.decoder.embed_tokens is model.decoder.output_projection.embedding


def test_training_refuses_it(tmp_path):
    flags = ["--arch", "supermask_one_layer_transformer", "--regenerate-weights", "--save-dir", tmp_path]
    text, status = error_of("no-data", *flags)
    assert status == 2 and text.count("\n") == 1
    assert "--regenerate-weights: not supported in training; give it to fairseq-generate as --model-overrides" in text

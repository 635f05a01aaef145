"""Models and searches that use fairseq's own generator, with the reason."""

from types import SimpleNamespace

import pytest
import torch
from fairseq import search
from torch import nn

from fairseq_reservoir.speed.generation.decoder_checks import unsupported_model, unsupported_search
from tests.support import building
from tests.support.beam_searches import generators, model


@pytest.mark.parametrize(
    "options, reason",
    [
        ({"decoder": "LS"}, "a layer contains StaticMixing"),
        ({"decoder": "GL"}, "a layer contains CausalGRU"),
        ({"decoder": "CL"}, "a layer contains"),
        ({"decoder": "L", "cross_self_attention": True, "no_cross_attention": True}, "--cross-self-attention"),
        ({"arch": "supermask_one_layer_transformer_tiny"}, "the embedding is MaskedEmbedding"),
        ({"decoder": "L", "adaptive_softmax_cutoff": "10"}, "adaptive softmax"),
        ({"decoder": "L", "checkpoint_activations": True}, "a hook or a changed forward pass"),
    ],
)
def test_models(options, reason):
    options = {"words": (40, 40), **options}
    assert reason in unsupported_model(building.build(**options))


def test_usual_models():
    for options in ({"decoder": "LTLF"}, {"decoder": "fL", "decoder_learned_pos": True}):
        assert unsupported_model(building.build(**options)) is None


def test_a_hook_and_dropout():
    found = model()
    found.decoder.layers[0].fc1.register_forward_hook(lambda *_: None)
    assert unsupported_model(found) == "decoder.layers.0.fc1 has a hook or a changed forward pass"
    found = model()
    found.decoder.layers[0].dropout_module.apply_during_inference = True
    assert unsupported_model(found) == "--retain-dropout"
    assert "not a Transformer" in unsupported_model(nn.Linear(1, 1))


def test_searches():
    usual, _ = generators(model(), 5)
    assert unsupported_search(usual) is None
    dictionary = usual.tgt_dict
    for name, value, reason in (
        ("search", search.Sampling(dictionary), "the search is Sampling"),
        ("lm_model", nn.Identity(), "a language model"),
        ("repeat_ngram_blocker", object(), "--no-repeat-ngram-size"),
        ("match_source_len", True, "--match-source-len"),
        ("vocab_size", 11, "only 11 entries for a beam of 5"),
        ("token_indices_to_suppress", torch.arange(4, 33), "only 40 entries for a beam of 5"),
        ("model", SimpleNamespace(models_size=2), "several models"),
    ):
        changed = SimpleNamespace(**{**vars(usual), **usual._modules, name: value})
        assert reason in unsupported_search(changed)

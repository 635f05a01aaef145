"""The ledger: roles and bytes by hand."""

import pytest
import torch
from torch import nn

from fairseq_reservoir.checkpoint.ledger import ledger
from fairseq_reservoir.masks.masked_linear import MaskedLinear
from fairseq_reservoir.random_tensors.recipe import Recipe
from tests.support.building import build, build_supermask
from tests.support.letters import WITH_EVERY_KIND


def test_roles():
    model = build("LT", "L", freeze="emb", share_decoder_input_output_embed=True)
    roles = {item.name: item.role for item in ledger(model).items}
    assert roles["encoder.embed_tokens.weight"] == "frozen"
    assert roles["encoder.layers.0.fc1.weight"] == "trained"
    assert roles["encoder.layers.1.fc1.weight"] == "random"
    assert roles["decoder.output_projection.weight"] == "tied"
    assert roles["reservoir_version"] == "buffer"
    assert roles.keys() == model.state_dict().keys()


def test_tied_tensors_take_no_bytes():
    items = {item.name: item for item in ledger(build("L", "L", share_decoder_input_output_embed=True)).items}
    embedding, output = (items[f"decoder.{name}.weight"] for name in ("embed_tokens", "output_projection"))
    assert (embedding.bytes, output.bytes, output.size) == (4 * embedding.size, 0, embedding.size)


def test_it_agrees_with_the_slot_table():
    model = build(*WITH_EVERY_KIND.values())
    trained = sum(item.size for item in ledger(model).with_roles("trained"))
    assert trained == model.slot_table.trained_parameters
    assert trained + sum(i.size for i in ledger(model).with_roles("random")) == model.slot_table.parameters


def test_the_ledger_on_the_meta_device():
    with torch.device("meta"):
        empty = build("LTF")
    assert ledger(empty) == ledger(build("LTF"))


class Small(nn.Module):
    """A trained 3 x 4 matrix, an orthogonal 4 x 4 one, an exactly drawn vector of 4, and an int64 buffer of 2."""

    def __init__(self):
        super().__init__()
        self.trained = nn.Parameter(torch.zeros(3, 4))
        self.matrix = nn.Parameter(torch.eye(4), requires_grad=False)
        self.vector = nn.Parameter(torch.ones(4), requires_grad=False)
        self.register_buffer("version", torch.zeros(2, dtype=torch.int64))
        self.recipes = {"matrix": Recipe("orthogonal", "matrix", (4, 4)), "vector": Recipe("ones", "vector", (4,))}


def test_bytes_by_hand():
    found = ledger(Small())
    # 12 trained, 16 + 4 random, all of 4 bytes, and 2 of 8
    assert found.weight_bytes == 48 + 64 + 16 + 16
    assert found.optimizer_bytes == 12 * 8
    assert found.training_bytes == 144 + 96 + 48
    assert found.checkpoint_bytes == 144 + 96
    assert found.export_bytes() == 48 + 64 + 16
    assert found.export_bytes(regenerate=True) == 48 + 16
    assert found.export_bytes("fp16", with_weights=True) == 24 + 64 + 16 + 16


@pytest.mark.parametrize(
    "choices, bits",
    [({}, 1), ({"kind": "signed"}, 2), ({"coats": (0.3,)}, 2), ({"coats": (0.3, 0.1), "kind": "signed"}, 3)],
)
def test_masks_are_counted_in_bits(choices, bits):
    model = nn.ModuleDict({"a": MaskedLinear(5, 3, seed=1, **choices)})
    model.recipes = {"a.frozen_weight": Recipe("kaiming_uniform", "weight", (3, 5))}
    found = ledger(model)
    assert {item.name: item.role for item in found.items} == {"a.scores": "mask", "a.frozen_weight": "random"}
    # 15 entries in 2 bytes per bit; W is drawn again
    assert found.export_bytes() == 2 * bits
    assert found.training_bytes == 15 * 4 + 15 * 16
    assert found.inference_bytes == 15 * 4


def test_frozen_scores_and_latent_weights_have_no_gradient_and_no_moments():
    for choices in ({}, {"mask_trained_weights": "sign"}):
        trained, frozen = ledger(build_supermask(**choices)), ledger(build_supermask(freeze="encoder.ffn", **choices))
        entries = sum(item.size for item in frozen.items if not item.learned)
        assert entries > 0 and all(".fc" in item.name for item in frozen.items if not item.learned)
        assert trained.optimizer_bytes - frozen.optimizer_bytes == 8 * entries
        of_training = [found.training_bytes - found.weight_bytes for found in (trained, frozen)]
        assert of_training[0] - of_training[1] == 12 * entries
        assert trained.with_roles("mask", "rounded") != frozen.with_roles("mask", "rounded")
        stored = [[item.export_bytes() for item in found.with_roles("mask", "rounded")] for found in (trained, frozen)]
        assert stored[0] == stored[1]


@pytest.mark.parametrize("choices", [{}, {"pin": 0.4}, {"random": True}])
def test_inference_needs_a_matrix_for_each_mask(choices):
    model = nn.ModuleDict({"owner": nn.Module()})
    model["owner"].register_buffer("w", torch.ones(3, 5))
    for name in "ab":
        model[name] = MaskedLinear(5, 3, seed=1, name=name, shared=(model["owner"], "w"), **choices)
    model.recipes = {"owner.w": Recipe("ones", "w", (3, 5))}
    assert ledger(model).inference_bytes == 2 * 15 * 4


def test_word_vectors_behind_a_mask_are_frozen_and_not_random():
    model = nn.ModuleDict({"embed_tokens": MaskedLinear(5, 3, seed=1)})  # a model without recipes
    found = ledger(nn.ModuleDict({"encoder": model}))
    (item,) = found.with_roles("frozen")
    assert item.name == "encoder.embed_tokens.frozen_weight" and item.is_embedding and not found.with_roles("buffer")
    assert found.export_bytes("fp16") == 2 + 15 * 2
    assert found.papers_bytes == 4 * 15 / 2

"""Bits of supermask models: equal to those of earlier versions, and to those drawn by their recipes."""

import hashlib
import json

import pytest

from fairseq_reservoir.masks.masked_weight import masked_modules
from tests.support.building import build_lm, build_roberta, build_supermask

BUILD = {"transformer": build_supermask, "language model": build_lm, "roberta": build_roberta}
# Printed by this file's digest() at commit 3ee9a28, for options with weights that are equal on every machine. Those of scope
# ``global`` are newer, from the change of their initial scores.
BEFORE = {
    "f2a8afa16342503a": {},
    "4102864d7fc91555": {"mask_init_weights": "kaiming_uniform"},
    "4c7180f64433ca88": {"mask_init_weights": "xavier_uniform"},
    "7332b35b9a9d14d7": {"mask_init_weights": "signed_constant"},
    "45cc0513df1eb357": {"mask_init_weights": "paper_code"},
    "7fdef5e1870c2fab": {"mask_scope": "row"},
    "0437f5ff7fc5f793": {"mask_scope": "global"},
    "576f4f4ae8ee2b2c": {"mask_scores": "value"},
    "289c509ed6d191fd": {"mask_kind": "signed"},
    "de3998312468c120": {"mask_share": "none"},
    "a3fb2f865ecdffd8": {"mask_random": True},
    "0dd7ce8818bfe7ac": {"mask_pin": 0.3},
    "a595dcca94b1b9f2": {"mask_coats": "0.3,0.1"},
    "494c41c1bff772d7": {"mask_keep_ratio": 0.1},
    "f957b2075e88be55": {"mask_embeddings": "trained"},
    "3058a7afa84ed3f2": {"share_decoder_input_output_embed": False},
    "e22663b7988f225f": {"mask_scope": "global", "mask_pin": 0.3, "mask_kind": "signed", "mask_coats": "0.3,0.1"},
}
DRAWN = [
    *({"mask_init_weights": init} for init in ("kaiming_uniform", "kaiming_normal", "xavier_normal", "paper_code")),
    *(
        {"mask_share": share, "mask_embeddings": how}
        for share in ("layer", "none")
        for how in ("masked", "frozen", "trained", "8")
    ),
    {"share_decoder_input_output_embed": False, "untie_weights_roberta": True},
    {"share_decoder_input_output_embed": False, "mask_embeddings": "frozen"},
    {"mask_coats": "0.3,0.1", "mask_pin": 0.3},
    {"checkpoint_activations": True},
    {"encoder_layers_to_keep": "0,2", "decoder_layers_to_keep": "1"},
    {"encoder_layers_to_keep": "0,2", "decoder_layers_to_keep": "1", "mask_share": "none"},
]


def digest(model):
    """Digest of every masked module's random weight, mask and scores, and of the model's recipes."""
    found = hashlib.sha256()
    for name, module in sorted(masked_modules(model).items()):
        scores = [] if module.scores is None else [module.scores.detach()]
        for tensor in (module.frozen_weight, module.mask, *scores):
            found.update(f"{name}{tensor.dtype}{tuple(tensor.shape)}".encode() + tensor.contiguous().numpy().tobytes())
    recipes = {name: recipe.as_json() for name, recipe in model.recipes.items()}
    found.update(json.dumps(recipes, sort_keys=True).encode())
    return found.hexdigest()[:16]


@pytest.mark.parametrize("before", BEFORE)
def test_as_before(before):
    assert digest(build_supermask(**BEFORE[before])) == before


@pytest.mark.parametrize("kind", BUILD)
@pytest.mark.parametrize("options", DRAWN, ids=str)
def test_every_recipe_draws_its_tensor_and_every_random_tensor_has_one(kind, options):
    model = BUILD[kind](**options)
    state, seed = model.state_dict(), model.slot_table.seed
    for name, recipe in model.recipes.items():
        assert state[name].equal(recipe.draw(seed)), name
    random = {name for name in state if name.endswith("frozen_weight") or ".random_layer." in name}
    assert random <= model.recipes.keys()

"""How the random weights of a supermask model are drawn, for exports that leave them out."""

from ...masks.mask_choices import MaskChoices
from ...plan.freeze_spec import place as layer_of, plain
from ...plan.layer_plan import Slot
from ...random_tensors.recipe import Recipe
from .stacks import MaskedParts


def mask_recipes(model, parts: dict[str, MaskedParts], plans: dict[str, tuple[Slot, ...]]) -> dict[str, Recipe]:
    """The recipe of every random weight behind masks, by its name in the state dict; word vectors from a file have none.

    Args:
        model: a built supermask model.
        parts: what made the masked matrices of each stack.
        plans: the slots of each stack, after whose numbers in the whole model matrices are named.
    """
    recipes = {}
    for name, buffer in model.named_buffers():
        drawn_under = _with_origin(plain(name).removesuffix(".frozen_weight"), plans)
        stack, _, place = drawn_under.partition(".")
        module = model.get_submodule(name.rpartition(".")[0])
        random = name.endswith(".frozen_weight") or place.startswith("random_layer.")
        if not random or not getattr(module, "has_recipe", True):
            continue
        init, gain = parts[stack].drawn_as(place)
        padding = getattr(module, "padding_idx", None)
        gain = MaskChoices(**parts[stack].choices).gain if gain is None else gain
        recipes[name] = Recipe(init, drawn_under, tuple(buffer.shape), scale=gain, zero_row=padding)
    return recipes


def _with_origin(name, plans):
    layer = layer_of(name)
    if layer is None:
        return name
    stack, depth = layer
    return name.replace(f".layers.{depth}.", f".layers.{plans[stack][depth].origin}.", 1)


def embedding_recipes(model, options) -> dict[str, Recipe]:
    """The recipes of what ``--mask-embeddings frozen`` draws: token embeddings, and an output projection of its own."""
    recipes = {}
    for name, weight in model.named_parameters():
        module = model.get_submodule(name.rpartition(".")[0])
        drawn = name.endswith((".embed_tokens.weight", ".output_projection.weight")) and getattr(module, "has_recipe", True)
        if options.mask_embeddings == "frozen" and drawn:
            padding = getattr(module, "padding_idx", None)
            recipes[name] = Recipe("embedding_normal", plain(name), tuple(weight.shape), zero_row=padding)
    return recipes

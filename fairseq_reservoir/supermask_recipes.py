"""How the random weights of a supermask model are drawn, for exports that leave them out."""

from .modules.mask_choices import MaskChoices
from .modules.recipe import Recipe
from .supermask_stacks import MaskedParts


def mask_recipes(model, parts: dict[str, MaskedParts]) -> dict[str, Recipe]:
    """The recipe of every random weight behind masks, by its name in the state dict.

    Args:
        model: a built supermask model.
        parts: what made the masked matrices of each stack.
    """
    recipes = {}
    for name, buffer in model.named_buffers():
        drawn_under = name.removesuffix(".frozen_weight")
        stack, _, place = drawn_under.partition(".")
        if drawn_under == name and not place.startswith("random_layer."):
            continue
        init, gain = parts[stack].drawn_as(place)
        padding = getattr(model.get_submodule(name.rpartition(".")[0]), "padding_idx", None)
        gain = MaskChoices(**parts[stack].choices).gain if gain is None else gain
        recipes[name] = Recipe(init, drawn_under, tuple(buffer.shape), scale=gain, zero_row=padding)
    return recipes

"""Chooses how each frozen tensor is drawn, for reservoirs (Shen et al., 2021) and for freeze specs, and writes the values."""

import math
from collections.abc import Mapping

import torch
from torch import nn

from ..errors import InputError
from .recipe import Recipe

Shapes = Mapping[str, tuple[int, ...]]


@torch.no_grad()
def fill(parameters: Mapping[str, torch.Tensor], recipes: dict[str, Recipe], seed: int) -> None:
    """Writes the tensors that have a recipe in place, unless a model without values is being built on the device ``meta``."""
    on_meta = torch.get_default_device().type == "meta"  # where fairseq still makes some parameters on the CPU
    for name, drawn in recipes.items():
        if not on_meta and not parameters[name].is_meta:
            parameters[name].copy_(drawn.draw(seed))


def draw(module: nn.Module, recipes: dict[str, Recipe], seed: int) -> None:
    """Writes tensors of a module in place and keeps their recipes with it, where ``recipes_in`` finds them.

    Args:
        module: owner of the tensors.
        recipes: by the tensors' names in the module.
        seed: what they are drawn from, and nothing else but their recipes.
    """
    fill(dict(module.named_parameters()) | dict(module.named_buffers()), recipes, seed)
    kept = getattr(module, "recipes", {}) | recipes
    module.recipes = kept  # type: ignore[assignment]  # no tensor and no module, which torch expects


def recipes_in(model: nn.Module) -> dict[str, Recipe]:
    """The recipes that the modules of a model keep in their ``recipes``, by the tensors' names in the model."""
    return {
        f"{place}.{name}".lstrip("."): recipe
        for place, module in model.named_modules()
        for name, recipe in getattr(module, "recipes", {}).items()
    }


def reservoir_recipe(name: str, random_name: str, shapes: Shapes) -> Recipe:
    """The recipe of the frozen tensor ``name`` of a reservoir.

    A matrix becomes orthogonal, each projection by itself. The weights of static mixing become +-1/4, a size that its
    normalisation takes away. A LayerNorm becomes 1 and 0, and any other gain 1. A bias is drawn from
    U(-1/sqrt(fan_in), 1/sqrt(fan_in)) as in ``nn.Linear`` and ``nn.GRU`` (there with the hidden size), except that of
    attention's output projection, which fairseq sets to 0.

    Args:
        name: the tensor's name in the model.
        random_name: the name it is drawn under.
        shapes: shapes of the model's parameters by name.

    Raises:
        InputError: it is none of these.
    """
    shape = tuple(shapes[name])
    if name.endswith("self_attn.mix"):
        return Recipe("signed_constant", random_name, shape, scale=math.sqrt(shape[1] / 2) / 4)
    if len(shape) >= 2:
        return Recipe("orthogonal", random_name, shape, blocks=_projections(name, shapes))
    if "bias" not in name.rpartition(".")[2]:
        return Recipe("ones", random_name, shape)
    if name.endswith(("layer_norm.bias", "layernorm.bias", "attn_ln.bias", "out_proj.bias")):
        return Recipe("zero", random_name, shape)
    return Recipe("bias_uniform", random_name, shape, fan_in=_fan_in(name, shapes))


def component_recipe(
    initialiser: str, name: str, random_name: str, shapes: Shapes, table: bool = False, padding: int | None = None
) -> Recipe:
    """The recipe of a tensor that a freeze spec froze.

    A bias becomes 0, a LayerNorm 1 and 0, a matrix what ``initialiser`` makes of it, each projection by itself. The kernels of
    a convolution are the rows of a matrix. The rows of a table of words or positions get a length of about 1, as fairseq
    draws them: fans are about sums over inputs, and a row is looked up.

    Args:
        initialiser: key of ``initialisers.MATRIX_INITIALISERS``.
        name, random_name, shapes: as for ``reservoir_recipe``.
        table: whether it belongs to such a table.
        padding: a row to set to 0.
    """
    shape = tuple(shapes[name])
    if "bias" in name.rpartition(".")[2]:
        return Recipe("zero", random_name, shape)
    if len(shape) == 1:
        return Recipe("ones", random_name, shape)
    if not table:
        return Recipe(initialiser, random_name, shape, blocks=_projections(name, shapes))
    scale = 1.0
    if initialiser == "orthogonal":
        scale = math.sqrt(max(1, shape[0] / shape[1]))
    elif initialiser in ("xavier_uniform", "kaiming_uniform", "signed_constant"):
        # Kaiming's entries have a variance of 2 / columns.
        initialiser = "signed_constant" if initialiser == "signed_constant" else "kaiming_uniform"
        scale = math.sqrt(0.5)
    return Recipe(initialiser, random_name, shape, scale=scale, zero_row=padding)


def _projections(name: str, shapes: Shapes) -> int:
    """How many projections stand on top of each other in a matrix: the gates of a GRU or LSTM, the halves of a GLU."""
    ending = name.rpartition(".")[2]
    rows, columns = shapes[name][:2]
    if ending == "in_proj_weight":
        return rows // columns
    if ending.startswith(("weight_ih", "weight_hh")):
        gates, hidden = shapes[_of_last_output(name)]
        return gates // hidden
    if name.endswith("linear1.weight"):
        after = shapes.get(f"{name.removesuffix('linear1.weight')}linear2.weight")
        return rows // after[1] if after else 1
    return 1


def _fan_in(name: str, shapes: Shapes) -> int:
    is_recurrent = name.rpartition(".")[2].startswith(("bias_ih", "bias_hh"))  # with however many gates
    weight = shapes.get(_of_last_output(name) if is_recurrent else name.removesuffix("bias") + "weight")
    if weight is None:
        raise InputError(
            f"{name}: of a frozen layer matrices are drawn, a LayerNorm named layer_norm, and a bias beside a weight; a tensor like "
            "this one has to be a buffer, or be named in another way"
        )
    return weight[1]


def _of_last_output(name: str) -> str:
    """The matrix beside a recurrent network's matrix or bias that its last output goes through: (gates x hidden, hidden)."""
    module, _, ending = name.rpartition(".")
    return f"{module}.{ending.replace('bias', 'weight').replace('_ih', '_hh')}"

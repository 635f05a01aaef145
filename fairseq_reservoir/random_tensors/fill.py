"""Choose the recipe of each frozen tensor, and write the values that the recipe draws.

Tensors are frozen because they belong to a reservoir (Shen et al., 2021) or because ``--freeze`` names them.
"""

import math
from collections.abc import Mapping

import torch
from torch import nn

from ..errors import InputError
from .recipe import Recipe

Shapes = Mapping[str, tuple[int, ...]]


@torch.no_grad()
def fill(parameters: Mapping[str, torch.Tensor], recipes: dict[str, Recipe], seed: int) -> None:
    """Overwrite each parameter that has a recipe with drawn values. Does nothing while a model is built on the meta device."""
    # The default device is checked too, because even then fairseq creates some parameters on the CPU.
    on_meta = torch.get_default_device().type == "meta"
    for name, drawn in recipes.items():
        if not on_meta and not parameters[name].is_meta:
            parameters[name].copy_(drawn.draw(seed))


def draw(module: nn.Module, recipes: dict[str, Recipe], seed: int) -> None:
    """Draw tensors of a module in place. Their recipes are added to ``module.recipes``, which ``recipes_in`` reads.

    Args:
        module: owner of the tensors.
        recipes: maps the name of each tensor in the module to its recipe.
        seed: seed of all draws.
    """
    fill(dict(module.named_parameters()) | dict(module.named_buffers()), recipes, seed)
    all_recipes = getattr(module, "recipes", {}) | recipes
    module.recipes = all_recipes  # type: ignore[assignment]  # torch expects a tensor or a module


def recipes_in(model: nn.Module) -> dict[str, Recipe]:
    """Collect the ``recipes`` of all modules of a model. Keys are the tensors' names in the model."""
    return {
        f"{place}.{name}".lstrip("."): recipe
        for place, module in model.named_modules()
        for name, recipe in getattr(module, "recipes", {}).items()
    }


def reservoir_recipe(name: str, random_name: str, shapes: Shapes) -> Recipe:
    """Return the recipe of the frozen tensor ``name`` of a reservoir.

    - Matrices are orthogonal. Projections that are stacked in one matrix are drawn separately.
    - Weights of static mixing are +1/4 or -1/4. Their magnitude has no effect, because the layer normalises them.
    - LayerNorms have weight 1 and bias 0. Other one-dimensional gains are 1.
    - The bias of attention's output projection is 0, as in fairseq. Other biases are drawn from
      U(-1/sqrt(fan_in), 1/sqrt(fan_in)), as in ``nn.Linear`` and ``nn.GRU``. For a GRU, fan_in is the hidden size.

    Args:
        name: the tensor's name in the model.
        random_name: the name that, with the seed, determines the values.
        shapes: shapes of the model's parameters by name.

    Raises:
        InputError: no rule applies to the tensor.
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
    """Return the recipe of a tensor that ``--freeze`` freezes.

    - Biases are 0. LayerNorms have weight 1 and bias 0.
    - Matrices are drawn by ``initialiser``. Projections that are stacked in one matrix are drawn separately. A convolution is
      drawn as a matrix with one kernel per row.
    - Rows of an embedding table have a norm of about 1, as in fairseq. Their scale does not depend on fan_in or fan_out, because
      the model selects one row and does not sum over rows.

    Args:
        initialiser: key of ``initialisers.MATRIX_INITIALISERS``.
        name, random_name, shapes: as for ``reservoir_recipe``.
        table: whether the tensor is a table of token or position embeddings.
        padding: index of the row that is set to 0; None for no row.
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
        # Kaiming's entries have variance 2 / columns. A row has a norm of about 1 if its entries have variance 1 / columns.
        initialiser = "signed_constant" if initialiser == "signed_constant" else "kaiming_uniform"
        scale = math.sqrt(0.5)
    return Recipe(initialiser, random_name, shape, scale=scale, zero_row=padding)


def _projections(name: str, shapes: Shapes) -> int:
    """Number of projections that are stacked in one matrix, such as the gates of a GRU or LSTM or the two halves of a GLU."""
    ending = name.rpartition(".")[2]
    rows, columns = shapes[name][:2]
    if ending == "in_proj_weight":
        return rows // columns
    if ending.startswith(("weight_ih", "weight_hh")):
        gates, hidden = shapes[_recurrent_matrix(name)]
        return gates // hidden
    if name.endswith("linear1.weight"):
        after = shapes.get(f"{name.removesuffix('linear1.weight')}linear2.weight")
        return rows // after[1] if after else 1
    return 1


def _fan_in(name: str, shapes: Shapes) -> int:
    is_recurrent = name.rpartition(".")[2].startswith(("bias_ih", "bias_hh"))
    weight = shapes.get(_recurrent_matrix(name) if is_recurrent else name.removesuffix("bias") + "weight")
    if weight is None:
        raise InputError(
            f"{name}: cannot draw this tensor of a frozen layer; only matrices, LayerNorms named layer_norm, and biases beside a "
            "weight can be drawn; make the tensor a buffer, or rename it"
        )
    return weight[1]


def _recurrent_matrix(name: str) -> str:
    """Name of the hidden-to-hidden matrix, shape (gates x hidden, hidden), of the GRU or LSTM that has the tensor ``name``."""
    module, _, ending = name.rpartition(".")
    return f"{module}.{ending.replace('bias', 'weight').replace('_ih', '_hh')}"

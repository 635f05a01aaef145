"""Choose a recipe for each frozen tensor, and overwrite the tensor with the values that its recipe draws.

A tensor is frozen because it belongs to a reservoir (Shen et al., 2021) or because ``--freeze`` names it.
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
    """Draw each parameter that has a recipe, in place. Do nothing while a model is built on the meta device."""
    # Checking the parameters is not enough: inside torch.device("meta"), fairseq still creates some of them on the CPU.
    on_meta = torch.get_default_device().type == "meta"
    for name, recipe in recipes.items():
        if not on_meta and not parameters[name].is_meta:
            parameters[name].copy_(recipe.draw(seed))


def draw(module: nn.Module, recipes: dict[str, Recipe], seed: int) -> None:
    """Draw parameters and buffers of a module in place, and add their recipes to ``module.recipes`` for ``recipes_in``.

    Args:
        module: the module that owns the tensors.
        recipes: a recipe for each tensor to draw, by its name in the module.
        seed: seed of all draws.
    """
    fill(dict(module.named_parameters()) | dict(module.named_buffers()), recipes, seed)
    module.recipes = getattr(module, "recipes", {}) | recipes  # type: ignore[assignment]  # torch expects a tensor or a module


def recipes_in(model: nn.Module) -> dict[str, Recipe]:
    """Collect the recipes that ``draw`` has stored in a model's modules: name of the tensor in the model -> recipe."""
    return {
        f"{place}.{name}".lstrip("."): recipe
        for place, module in model.named_modules()
        for name, recipe in getattr(module, "recipes", {}).items()
    }


def reservoir_recipe(name: str, random_name: str, shapes: Shapes) -> Recipe:
    """Return the recipe of a frozen tensor in a reservoir layer.

    - Matrices are orthogonal. If a matrix stacks several projections, each projection is drawn separately.
    - Weights of static mixing are +1/4 or -1/4. The magnitude has no effect, because the layer normalises its weights.
    - LayerNorms have weight 1 and bias 0. All other vectors are 1, except biases.
    - The bias of attention's output projection is 0, as in fairseq. All other biases are drawn from
      U(-1/sqrt(fan_in), 1/sqrt(fan_in)), as in ``nn.Linear`` and ``nn.GRU``. For a GRU, fan_in is the hidden size.

    Args:
        name: the tensor's name in the model.
        random_name: the values depend only on this name and the seed.
        shapes: shapes of all parameters of the model, by name.

    Raises:
        InputError: the tensor is a bias without a matrix beside it.
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
    """Return the recipe of a tensor that is frozen by ``--freeze``.

    - Biases are 0. LayerNorms have weight 1 and bias 0.
    - Matrices are drawn by ``initialiser``. If a matrix stacks several projections, each projection is drawn separately. A
      convolution is drawn as a matrix with one kernel per row.
    - The rows of an embedding table have a norm of about 1, as in fairseq. The scale does not depend on the number of rows,
      because the model reads single rows and never sums over rows.

    Args:
        initialiser: key of ``initialisers.MATRIX_INITIALISERS``.
        name, random_name, shapes: as for ``reservoir_recipe``.
        table: whether the tensor is a table of token or position embeddings.
        padding: index of a row to set to 0, the padding row of an embedding table. If it is ``None``, no row is set to 0.
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
        # kaiming_uniform draws entries of variance 2 / columns. A row has norm 1 at a variance of 1 / columns.
        initialiser = "signed_constant" if initialiser == "signed_constant" else "kaiming_uniform"
        scale = math.sqrt(0.5)
    return Recipe(initialiser, random_name, shape, scale=scale, zero_row=padding)


def _projections(name: str, shapes: Shapes) -> int:
    """Count the projections that a matrix stacks, such as the gates of a GRU or LSTM, or the two halves of a GLU."""
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
    matrix = _recurrent_matrix(name) if is_recurrent else name.removesuffix("bias") + "weight"
    if len(shapes.get(matrix, ())) < 2:
        raise InputError(
            f"{name}: cannot draw this bias of a frozen layer, because the layer has no matrix {matrix}. Rename the bias or its "
            "matrix, or make the bias a buffer. If the layer is a LayerNorm, give it a name that ends with layer_norm"
        )
    return shapes[matrix][1]


def _recurrent_matrix(name: str) -> str:
    """Return the name of the hidden-to-hidden matrix, (gates x hidden, hidden), of the GRU or LSTM with the tensor ``name``."""
    module, _, ending = name.rpartition(".")
    return f"{module}.{ending.replace('bias', 'weight').replace('_ih', '_hh')}"

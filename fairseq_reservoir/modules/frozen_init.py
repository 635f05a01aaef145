"""Initial values of a reservoir's tensors (Shen et al., 2021): orthogonal projections, PyTorch's defaults elsewhere."""

import math

import torch
from torch import nn

from .recipe import Recipe

# How many projections stand on top of each other in one matrix; each is made orthogonal by itself.
_STACKED = {"weight_ih_l0": 3, "weight_hh_l0": 3, "linear1.weight": 2}


@torch.no_grad()
def fill_frozen(parameters: dict[str, nn.Parameter], random_names: dict[str, str], seed: int) -> None:
    """Writes the frozen tensors of the reservoirs in place, each as its ``recipe`` says.

    Args:
        parameters: the model's parameters by name.
        random_names: for each tensor to fill, its name in the model -> the name it is drawn under.
        seed: the tensors depend on this and on their random names, on nothing else.
    """
    shapes = {name: tuple(parameter.shape) for name, parameter in parameters.items()}
    for name, random_name in random_names.items():
        parameter = parameters[name]
        if not parameter.is_meta:
            parameter.copy_(recipe(name, random_name, shapes).draw(seed))


def recipe(name: str, random_name: str, shapes: dict[str, tuple[int, ...]]) -> Recipe:
    """How the frozen tensor ``name`` of a reservoir is drawn.

    A matrix becomes orthogonal, each projection by itself. The weights of static mixing become +-1/4, a size that its
    normalisation takes away. A LayerNorm becomes 1 and 0. A bias is drawn from
    U(-1/sqrt(fan_in), 1/sqrt(fan_in)) as in ``nn.Linear`` and ``nn.GRU`` (there with the hidden size), except that of
    attention's output projection, which fairseq sets to 0.

    Args:
        name: the tensor's name in the model.
        random_name: the name it is drawn under.
        shapes: shapes of the model's parameters by name.
    """
    shape = tuple(shapes[name])
    if name.endswith("self_attn.mix"):
        return Recipe("signed_constant", random_name, shape, scale=math.sqrt(shape[1] / 2) / 4)
    if len(shape) == 2:
        parts = next((n for ending, n in _STACKED.items() if name.endswith(ending)), 1)
        return Recipe("orthogonal", random_name, shape, blocks=parts)
    if name.endswith("layer_norm.weight"):
        return Recipe("ones", random_name, shape)
    if name.endswith(("layer_norm.bias", "out_proj.bias")):
        return Recipe("zero", random_name, shape)
    return Recipe("bias_uniform", random_name, shape, fan_in=_fan_in(name, shape, shapes))


def _fan_in(name, shape, shapes):
    if name.endswith(("bias_ih_l0", "bias_hh_l0")):
        return shape[0] // 3
    return shapes[name.removesuffix("bias") + "weight"][1]

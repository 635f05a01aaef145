"""Initial values of a reservoir's tensors (Shen et al., 2021): orthogonal projections, PyTorch's defaults elsewhere."""

import torch
from torch import nn

from .. import initialisers

# How many projections stand on top of each other in one matrix; each is made orthogonal by itself.
_STACKED = {"weight_ih_l0": 3, "weight_hh_l0": 3, "linear1.weight": 2}


@torch.no_grad()
def fill_frozen(parameters: dict[str, nn.Parameter], random_names: dict[str, str], seed: int) -> None:
    """Writes the frozen tensors of the reservoirs in place.

    A matrix becomes orthogonal, each projection by itself. A LayerNorm becomes 1 and 0. A bias is drawn from
    U(-1/sqrt(fan_in), 1/sqrt(fan_in)) as in ``nn.Linear`` and ``nn.GRU`` (there with the hidden size), except that of
    attention's output projection, which fairseq sets to 0.

    Args:
        parameters: the model's parameters by name.
        random_names: for each tensor to fill, its name in the model -> the name it is drawn under.
        seed: the tensors depend on this and on their random names, on nothing else.
    """
    for name, random_name in random_names.items():
        parameter = parameters[name]
        if not parameter.is_meta:
            parameter.copy_(_value(name, parameter.shape, parameters, random_name, seed))


def _value(name, shape, parameters, random_name, seed):
    if len(shape) == 2:
        return _orthogonal(name, tuple(shape), random_name, seed)
    if name.endswith("layer_norm.weight"):
        return torch.ones(shape)
    if name.endswith(("layer_norm.bias", "out_proj.bias")):
        return torch.zeros(shape)
    return initialisers.bias_uniform(seed, random_name, tuple(shape), _fan_in(name, shape, parameters))


def _orthogonal(name, shape, random_name, seed):
    parts = next((n for ending, n in _STACKED.items() if name.endswith(ending)), 1)
    if parts == 1:
        return initialisers.orthogonal(seed, random_name, shape)
    block = (shape[0] // parts, shape[1])
    return torch.cat([initialisers.orthogonal(seed, f"{random_name}/{i}", block) for i in range(parts)])


def _fan_in(name, shape, parameters):
    if name.endswith(("bias_ih_l0", "bias_hh_l0")):
        return shape[0] // 3
    return parameters[name.removesuffix("bias") + "weight"].shape[1]

"""fairseq's quantization noise (``--quant-noise-pq``) on matrices that are not trained: in the products, and not in the matrices.

fairseq drops blocks of a matrix in every forward pass of training by writing over the matrix. An optimizer builds up again what
it trains, and what is frozen would be gone after a few updates.
"""

import functools
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch
from torch import nn

_HOOK = "quant_noise.<locals>._forward_pre_hook"


def spare_frozen(model: nn.Module) -> None:
    """Lets matrices keep their values under noise while they take no gradient; the products see the same noise as ever.

    What is trained gets fairseq's noise as it is. Whether it is trained is asked at every pass, since freeze schedules change it.
    """
    for module in model.modules():
        for key, hook in module._forward_pre_hooks.items():
            if getattr(hook, "__qualname__", None) == _HOOK:
                module._forward_pre_hooks[key] = functools.partial(_add_noise, hook)
                module.register_forward_hook(_take_away, always_call=True)


@torch.no_grad()
def _add_noise(hook: Callable[..., Any], module: Any, inputs: tuple[Any, ...]) -> None:
    if module.weight.requires_grad or not module.training:
        hook(module, inputs)
        return
    double = SimpleNamespace(**vars(module))
    double.weight = nn.Parameter(module.weight, requires_grad=False)
    hook(double, inputs)
    # Found before the parameter of that name, as long as it is there.
    vars(module)["weight"] = double.weight.detach()


def _take_away(module: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
    vars(module).pop("weight", None)

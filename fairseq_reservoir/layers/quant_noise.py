"""fairseq's quantization noise (``--quant-noise-pq``) for frozen matrices.

In each training step, fairseq sets blocks of a matrix to 0. Optimizer steps restore a trained matrix, but a frozen matrix would be lost
after a few updates. Here, noise is added to a copy of the frozen matrix.
"""

import functools
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch
from torch import nn

_HOOK = "quant_noise.<locals>._forward_pre_hook"


def protect_frozen(model: nn.Module) -> None:
    """Add quantization noise to copies of frozen matrices, so the matrices themselves do not change. Outputs are the same as in fairseq.

    Trained matrices get fairseq's noise. ``requires_grad`` is read in each forward pass, because freeze schedules change it.
    """
    for module in model.modules():
        for key, hook in module._forward_pre_hooks.items():
            if getattr(hook, "__qualname__", None) == _HOOK:
                module._forward_pre_hooks[key] = functools.partial(_add_noise, hook)
                module.register_forward_hook(_remove_copy, always_call=True)


@torch.no_grad()
def _add_noise(hook: Callable[..., Any], module: Any, inputs: tuple[Any, ...]) -> None:
    if module.weight.requires_grad or not module.training:
        hook(module, inputs)
        return
    copy = SimpleNamespace(**vars(module))
    copy.weight = nn.Parameter(module.weight, requires_grad=False)
    hook(copy, inputs)
    # An instance attribute takes precedence over the parameter of the same name.
    vars(module)["weight"] = copy.weight.detach()


def _remove_copy(module: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
    vars(module).pop("weight", None)

"""``--frozen-dtype bf16``: store the matrices of wholly frozen layers in bfloat16, and multiply with them in bfloat16.

Trained matrices need more precision, because small updates are added to them. Frozen matrices do not.
"""

import functools
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


def frozen_layers(model: Any, stacks: Iterable[str]) -> Iterator[tuple[str, nn.Module]]:
    """Yield (place, layer) of each layer without trained parameters. A place is the layer's name, such as "encoder.layers.1"."""
    frozen = {row.place for row in model.slot_table.rows if row.state == "frozen"}
    for name in stacks:
        stack = getattr(model, name)
        # children(), because iteration would drop layers with --encoder-layerdrop.
        for depth, layer in enumerate(getattr(stack, "sentence_encoder", stack).layers.children()):
            if f"{name}.layers.{depth}" in frozen:
                yield f"{name}.layers.{depth}", layer


def use_dtype(layer: nn.Module, dtype: torch.dtype) -> None:
    """Convert a frozen layer's matrices to ``dtype`` and compute its matrix products in ``dtype``.

    The residual stream, LayerNorms and biases stay float32. In a half-precision model, only the storage of the matrices changes.
    """
    for parameter in layer.parameters():
        if parameter.dim() > 1:
            parameter.data = parameter.data.to(dtype)
    layer.forward = _inside(layer.forward, functools.partial(_forward, dtype))


def _inside(forward: Callable[..., Any], wrapper: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a forward function. With activation checkpointing, wrap the inner function, because fairseq recomputes it without autocast."""
    if isinstance(forward, functools.partial):
        return functools.partial(forward.func, functools.partial(wrapper, forward.args[0]), *forward.args[1:])
    return functools.partial(wrapper, forward)


def _forward(dtype: torch.dtype, forward: Callable[..., Any], x: Tensor, *args: Any, **kwargs: Any) -> Any:
    if x.dtype != torch.float32:
        return forward(x, *args, **kwargs)
    with torch.autocast(x.device.type, dtype):
        result = forward(x, *args, **kwargs)
    if isinstance(result, tuple):
        return (result[0].float(), *result[1:])
    return result.float()

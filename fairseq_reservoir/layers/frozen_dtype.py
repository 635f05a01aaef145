"""``--frozen-dtype bf16``: the matrices of wholly frozen layers in half the memory, and their products in bfloat16.

What is never updated needs no bits below those that the forward pass uses: there is nothing to add small steps to.
"""

import functools
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import InputError

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


def refuse_fp16(cfg: Any) -> None:
    """Refuses ``--frozen-dtype`` with ``--fp16``: in half precision altogether, a model would save nothing and round twice.

    Raises:
        InputError: one line with the flags.
    """
    dtype = getattr(cfg.model, "frozen_dtype", "fp32")
    if cfg.common.fp16 and dtype != "fp32":
        raise InputError(
            f"--frozen-dtype {dtype}: --fp16 gives the whole model a type of its own; leave one of them out"
        )


def frozen_layers(model: Any, stacks: Iterable[str]) -> Iterator[tuple[str, nn.Module]]:
    """(place, layer) of the layers in which nothing is trained, such as ("encoder.layers.1", the layer)."""
    frozen = {row.place for row in model.slot_table.rows if row.state == "frozen"}
    for name in stacks:
        stack = getattr(model, name)
        # Not by iteration: with --encoder-layerdrop that leaves some layers out.
        for depth, layer in enumerate(getattr(stack, "sentence_encoder", stack).layers.children()):
            if f"{name}.layers.{depth}" in frozen:
                yield f"{name}.layers.{depth}", layer


def use_dtype(layer: nn.Module, dtype: torch.dtype) -> None:
    """Rounds a frozen layer's matrices to a type and lets its products run in it.

    The residual stream, LayerNorms and biases stay float32. In a model that is half precision altogether, this does nothing more.
    """
    for parameter in layer.parameters():
        if parameter.dim() > 1:
            parameter.data = parameter.data.to(dtype)
    layer.forward = _inside(layer.forward, functools.partial(_forward, dtype))


def _inside(forward: Callable[..., Any], wrapper: Callable[..., Any]) -> Callable[..., Any]:
    """Wraps a forward function, inside fairseq's activation checkpointing where there is any: it recomputes without autocast."""
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

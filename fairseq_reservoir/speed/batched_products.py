"""Compute fp32 matrix products with oneDNN on a CPU, except the batched products of attention.

With ``torch.set_float32_matmul_precision("medium")``, oneDNN computes ``mm``, ``addmm`` and ``bmm``. It also computes the small products
inside torch's attention kernel. The attention kernel then takes six times as long. The setting is global in the process, and also affects
the backward pass.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
from torch import Tensor

USUAL, OTHER = "highest", "medium"

_in_use: ContextVar[bool] = ContextVar("other_products", default=False)


@contextmanager
def other_products(wanted: bool = True) -> Iterator[None]:
    """Compute fp32 products with oneDNN inside the block, and in torch's default way afterwards. If not ``wanted``, do nothing."""
    if not wanted:
        yield
        return
    token = _in_use.set(True)
    torch.set_float32_matmul_precision(OTHER)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(USUAL)
        _in_use.reset(token)


def usual_products(function: Callable[..., Any], *inputs: Tensor | None) -> Any:
    """Compute ``function(*inputs)`` and its gradients in torch's default way, even inside ``other_products``.

    During the backward pass of ``function``, no other part of the model computes products, because torch's autograd engine runs the newest
    node first.

    Args:
        function: a function that returns a tensor, or a tuple with entries that are tensors or None.
        inputs: the arguments of ``function``. They must include every tensor that gets a gradient from ``function``, except the weights of
            ``function``.
    """
    if torch.compiler.is_compiling() or not _in_use.get():
        return function(*inputs)
    if torch.is_grad_enabled():
        needing = [x for x in inputs if x is not None and x.requires_grad]
        tracked = iter(_Enter.apply(*needing) if needing else ())
        inputs = tuple(next(tracked) if x is not None and x.requires_grad else x for x in inputs)
    torch.set_float32_matmul_precision(USUAL)
    try:
        y = function(*inputs)
    finally:
        torch.set_float32_matmul_precision(OTHER)
    left = _Leave.apply(*(y if isinstance(y, tuple) else (y,)))
    return left if isinstance(y, tuple) else left[0]


class _Enter(torch.autograd.Function):
    """Identity on the inputs of a function. In the backward pass, this identity runs after the function, and switches oneDNN on again."""

    @staticmethod
    def forward(ctx: Any, *inputs: Tensor) -> tuple[Tensor, ...]:
        ctx.set_materialize_grads(False)
        return inputs

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        if _in_use.get():  # a backward pass after the block must not change the setting of the process
            torch.set_float32_matmul_precision(OTHER)
        return gradients


class _Leave(torch.autograd.Function):
    """Identity on the outputs of a function.

    In the backward pass, this identity runs before the backward pass of the function, and switches to torch's default matrix product.
    """

    @staticmethod
    def forward(ctx: Any, *outputs: Tensor | None) -> tuple[Tensor | None, ...]:
        ctx.set_materialize_grads(False)
        return outputs

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        torch.set_float32_matmul_precision(USUAL)
        return gradients

"""Build models on the meta device without computing values.

A meta tensor has no values, but torch still runs the initialisation of meta tensors, in Python functions that import sympy. The
initialisation takes longer than all other work of building the model.
"""

import contextlib
from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

import torch
from fairseq.modules import SinusoidalPositionalEmbedding
from torch import nn
from torch.overrides import TorchFunctionMode

# Functions that return their first argument with other values, and with the same shape, dtype and device.
_FILL = {getattr(torch.Tensor, name) for name in "normal_ uniform_ zero_ fill_ div_ mul_".split()}
_FILL |= {getattr(nn.init, name) for name in "normal_ uniform_ constant_".split()}


@contextlib.contextmanager
def without_values() -> Iterator[None]:
    """Context manager that skips operations that only change the values of a meta tensor. New tensors must be on the meta device."""
    with _SkipFills(), patch.object(SinusoidalPositionalEmbedding, "get_embedding", staticmethod(_empty_table)):
        yield


class _SkipFills(TorchFunctionMode):
    """Skip ``Tensor.cpu`` and the functions in ``_FILL`` for meta tensors.

    RoBERTa's initialisation calls ``Tensor.cpu`` on each tensor.
    """

    def __torch_function__(
        self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if function is torch.Tensor.cpu or function in _FILL:
            tensor = args[0] if args else kwargs["tensor"]
            if tensor.is_meta:
                return tensor
        return function(*args, **kwargs)


def _empty_table(rows: int, dim: int, padding_idx: int | None = None) -> torch.Tensor:
    return torch.empty(rows, dim)

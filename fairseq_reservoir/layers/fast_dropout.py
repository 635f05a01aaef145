"""Faster dropout on a CPU, where torch's own dropout draws one float after another."""

from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from fairseq.modules.fairseq_dropout import FairseqDropout
from torch import Tensor, nn

from .replace import adopt, replace_modules


class _FastDropout(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, p: float) -> Tensor:
        threshold = round(p * 2**16)
        generator = np.random.SFC64(int(torch.randint(2**62, ())))
        numbers = torch.from_numpy(generator.random_raw((x.numel() + 3) // 4).view(np.int16)[: x.numel()])
        # The mask has the dtype of x, because a product with a bool mask is several times slower.
        kept = torch.ge(numbers.view(x.shape), threshold - 2**15, out=torch.empty_like(x))
        ctx.save_for_backward(kept)
        ctx.scale = 2**16 / (2**16 - threshold)
        y: Tensor = (x * kept).mul_(ctx.scale)
        return y

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None]:
        (kept,) = ctx.saved_tensors
        return (g * kept).mul_(ctx.scale), None


def fast_dropout(x: Tensor, p: float) -> Tensor:
    """Dropout y = x b / (1 - p). An entry of b is 0 with probability p, else 1. p is rounded to a multiple of 2^-16.

    Each entry of b uses 16 bits of the generator SFC64. SFC64 is seeded with one number from torch's generator. Therefore runs with the
    same seed are equal, also after resuming, and activation checkpointing draws the same b again. On devices other than a CPU,
    ``F.dropout`` is used. Its random numbers are different. For the backward pass, b is stored in the dtype of x, as in ``F.dropout``.
    """
    if x.device.type != "cpu" or round(p * 2**16) >= 2**16 or not x.is_floating_point():
        return F.dropout(x, p)
    dropped: Tensor = _FastDropout.apply(x.contiguous(), p)  # type: ignore[no-untyped-call]  # torch's
    return dropped


class FastFairseqDropout(FairseqDropout):
    """fairseq's dropout module, computed by ``fast_dropout``."""

    def forward(self, x: Tensor, inplace: bool = False) -> Tensor:
        if self.p > 0 and (self.training or self.apply_during_inference):
            return fast_dropout(x, self.p)
        return x


def use_fast_dropout(model: nn.Module) -> None:
    """Replace every dropout module of a model. fairseq's fused attention uses no dropout module, so its dropout stays the same."""
    replace_modules(model, lambda module: adopt(FastFairseqDropout, module) if type(module) is FairseqDropout else None)

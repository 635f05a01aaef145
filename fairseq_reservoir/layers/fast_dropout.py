"""Dropout with a fast generator on a CPU. torch draws one float after the other there, one for each entry."""

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
        # In x's own type: a product with bools is several times slower.
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
    """y = x b / (1 - p), b = 0 with probability p and else 1, p rounded to a multiple of 2^-16.

    b has 16 bits per entry from the generator SFC64, seeded by one number of torch's generator. Runs with the same seed are equal,
    resume bit-exactly, and activation checkpointing draws the same numbers again. ``F.dropout`` has other numbers; it is used on other
    devices than a CPU. The backward pass needs one number of x's type per entry, as in ``F.dropout``.
    """
    if x.device.type != "cpu" or round(p * 2**16) >= 2**16 or not x.is_floating_point():
        return F.dropout(x, p)
    dropped: Tensor = _FastDropout.apply(x.contiguous(), p)  # type: ignore[no-untyped-call]  # torch's
    return dropped


class FastFairseqDropout(FairseqDropout):
    """fairseq's dropout with ``fast_dropout``'s random numbers."""

    def forward(self, x: Tensor, inplace: bool = False) -> Tensor:
        if self.p > 0 and (self.training or self.apply_during_inference):
            return fast_dropout(x, self.p)
        return x


def use_fast_dropout(model: nn.Module) -> None:
    """Replace every dropout module of a model, except where fairseq's layers fuse dropout into attention."""
    replace_modules(model, lambda module: adopt(FastFairseqDropout, module) if type(module) is FairseqDropout else None)

"""Streaming linear regression with an exact solution: no learning rate, no randomness, the same result on all ranks."""

from collections.abc import Callable
from typing import Self

import torch
from torch import Tensor, nn

# Factor by which the weight of earlier samples decays per update.
_DECAY = 0.99


class LeastSquares(nn.Module):
    """Ridge regression W = argmin sum_t 0.99^age(t) |y_t - W x_t|^2 + ridge tr(X X^T) / d |W|^2 over all samples so far.

    ``add`` accumulates batches. ``solve``, called once per update, sums them over all ranks and computes W. The x and y of a
    batch are divided by the RMS norm of x, which cancels the loss scale. The class never synchronises with the GPU: samples
    are filtered by a mask on the device.

    Args:
        inputs: d, the length of x.
        outputs: the length of y.
        ridge: ridge penalty, relative to the mean variance of an input.

    Buffers, always float32: ``gram`` (d, d), ``cross`` (outputs, d), ``map`` W (outputs, d).
    """

    gram: Tensor
    cross: Tensor
    map: Tensor

    def __init__(self, inputs: int, outputs: int, ridge: float = 1e-3):
        super().__init__()
        self.ridge = ridge
        self.register_buffer("gram", torch.zeros(inputs, inputs))
        self.register_buffer("cross", torch.zeros(outputs, inputs))
        self.register_buffer("map", torch.zeros(outputs, inputs))
        self.new_gram: Tensor | None = None
        self.new_cross: Tensor | None = None

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        def convert(tensor: Tensor) -> Tensor:
            moved = fn(tensor)
            return moved if moved.dtype == torch.float32 else tensor.to(moved.device)

        super()._apply(convert, recurse)  # type: ignore[no-untyped-call]  # torch's
        return self

    @torch.no_grad()
    def add(self, x: Tensor, y: Tensor, samples: Tensor | None = None) -> None:
        """Add a batch. A batch with infinite values or NaN is ignored, as in an update that overflows.

        Args:
            x: (rows, d).
            y: (rows, outputs).
            samples: (rows,), true for rows to use; None uses all rows.
        """
        x, y = x.float(), y.float()
        count: Tensor | int = len(x)
        if samples is not None:
            x, y = (rows.masked_fill(~samples.unsqueeze(-1), 0) for rows in (x, y))
            count = samples.sum().clamp(min=1)
        size = x.square().sum() / count
        usable = torch.isfinite(size + y.square().sum()) & (size > 0)
        gram, cross = ((product / size).masked_fill(~usable, 0) for product in (x.t() @ x, y.t() @ x))
        self.new_gram = gram if self.new_gram is None else self.new_gram + gram
        self.new_cross = cross if self.new_cross is None else self.new_cross + cross

    def predict(self, x: Tensor) -> Tensor:
        """Compute W x for x (..., d), in the dtype of x."""
        return (x.float() @ self.map.t()).to(x.dtype)

    @torch.no_grad()
    def solve(self) -> None:
        """Include the batches since the last call and recompute W. All ranks must call this together."""
        shared = torch.distributed.is_available() and torch.distributed.is_initialized()
        if self.new_gram is None and not shared:
            return
        new = (
            [torch.zeros_like(self.gram), torch.zeros_like(self.cross)]
            if self.new_gram is None or self.new_cross is None
            else [self.new_gram, self.new_cross]
        )
        self.new_gram = self.new_cross = None
        if shared:
            for tensor in new:
                torch.distributed.all_reduce(tensor)
        learned = new[0].any()
        for held, added in zip((self.gram, self.cross), new):
            held.copy_(torch.where(learned, held * _DECAY + added, held))
        variance = self.gram.diagonal().mean()
        penalty = self.ridge * variance * torch.eye(len(self.gram), device=self.gram.device)
        # torch.linalg.solve would synchronise with the device to check for errors.
        found, info = torch.linalg.solve_ex(self.gram + penalty, self.cross.t())
        self.map.copy_(torch.where(learned & (info == 0), found.t(), self.map))

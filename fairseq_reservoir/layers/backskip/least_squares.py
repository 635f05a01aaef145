"""Streaming linear regression with an exact solution. It has no learning rate, and the result is the same on all ranks."""

from collections.abc import Callable
from typing import Self

import torch
from torch import Tensor, nn

# At each update, the weights of earlier samples are multiplied by this factor.
_DECAY = 0.99


class LeastSquares(nn.Module):
    """Ridge regression W = argmin sum_t a_t |y_t - W x_t|^2 + ridge v |W|^2 over all samples (x_t, y_t) so far.

    a_t is 0.99^(number of updates since sample t). v is the mean of sum_t a_t x_t[i]^2 over the entries i.

    ``add`` accumulates batches. ``solve`` is called once per update. It sums the batches over all ranks and computes W. The x and y of
    a batch are divided by the RMS norm of x, so a loss scale has no effect. The host never waits for the GPU, because samples are
    selected by a mask on the device.

    Args:
        inputs: d, the length of x.
        outputs: the length of y.
        ridge: strength of the penalty.

    The buffers are always float32. ``gram`` (d, d) is sum_t a_t x_t x_t^T. ``cross`` (outputs, d) is sum_t a_t y_t x_t^T. ``map`` (outputs,
    d) is W.
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
        """Add a batch. A batch with infinite values or NaN, as after an overflow, is ignored.

        Args:
            x: (rows, d).
            y: (rows, outputs).
            samples: (rows,), true for the rows to add; None adds all rows.
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
        """Recompute W with the batches that were added since the last call. All ranks must call this together."""
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

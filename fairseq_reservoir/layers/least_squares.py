"""Linear regression on a stream, solved exactly: no learning rate, nothing drawn, and the same result on every process."""

import torch
from torch import Tensor, nn


class LeastSquares(nn.Module):
    """W = argmin sum_t decay^age(t) |y_t - W x_t|^2 + ridge tr(X X^T) / d |W|^2, over all samples seen so far.

    Each batch is added up until ``solve`` is called, once per update, which also adds up those of all processes. A batch is
    scaled to a mean |x_t|^2 of 1, both sides alike, so that W does not depend on a loss scale.

    Args:
        inputs: d, the length of x.
        outputs: the length of y.
        decay: weight of what came before, per update.
        ridge: relative to the mean variance of an input.

    Buffers, float32 whatever type the model is given: ``gram`` (d, d), ``cross`` (outputs, d), ``map`` W (outputs, d).
    """

    def __init__(self, inputs: int, outputs: int, decay: float = 0.99, ridge: float = 1e-3):
        super().__init__()
        self.decay, self.ridge = decay, ridge
        self.register_buffer("gram", torch.zeros(inputs, inputs))
        self.register_buffer("cross", torch.zeros(outputs, inputs))
        self.register_buffer("map", torch.zeros(outputs, inputs))
        self.new_gram = self.new_cross = None

    def _apply(self, fn, recurse=True):
        def convert(tensor):
            moved = fn(tensor)
            return moved if moved.dtype == torch.float32 else tensor.to(moved.device)

        return super()._apply(convert, recurse)

    @torch.no_grad()
    def add(self, x: Tensor, y: Tensor) -> None:
        """x (samples, d) and y (samples, outputs); what is not finite, as in an update that overflows, is left out."""
        x, y = x.float(), y.float()
        size = x.square().sum() / len(x)
        if not torch.isfinite(size + y.square().sum()) or size == 0:
            return
        gram, cross = x.t() @ x / size, y.t() @ x / size
        self.new_gram = gram if self.new_gram is None else self.new_gram + gram
        self.new_cross = cross if self.new_cross is None else self.new_cross + cross

    def predict(self, x: Tensor) -> Tensor:
        """W x for x (..., d), in the type of x."""
        return (x.float() @ self.map.t()).to(x.dtype)

    @torch.no_grad()
    def solve(self) -> None:
        """Takes in what was added since the last call and finds W anew. All processes have to call this together."""
        shared = torch.distributed.is_available() and torch.distributed.is_initialized()
        if self.new_gram is None and not shared:
            return
        new = [torch.zeros_like(self.gram), torch.zeros_like(self.cross)] if self.new_gram is None else [self.new_gram, self.new_cross]
        self.new_gram = self.new_cross = None
        if shared:
            for tensor in new:
                torch.distributed.all_reduce(tensor)
        if not new[0].any():
            return
        self.gram.mul_(self.decay).add_(new[0])
        self.cross.mul_(self.decay).add_(new[1])
        variance = self.gram.diagonal().mean()
        if variance > 0:
            penalty = self.ridge * variance * torch.eye(len(self.gram), device=self.gram.device)
            self.map.copy_(torch.linalg.solve(self.gram + penalty, self.cross.t()).t())

"""Gradients that stay in the same memory, so that a recorded backward pass can add to them."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

_ALIGNED = 64  # elements; kernels read whole vectors


class Gradients:
    """One buffer for the gradients of all parameters of a dtype. ``parameter.grad`` is a view of it.

    fairseq removes all gradients before an update. ``attach`` puts the views back and sets them to 0. Parameters without a gradient after
    the first update have none here either, because an optimizer would otherwise apply weight decay to them.
    """

    def __init__(self, parameters: Sequence[nn.Parameter]) -> None:
        """Create buffers for the gradients of ``parameters``, with the gradients that they have now."""
        self.parameters = [p for p in parameters if p.grad is not None]
        found = [p.grad for p in self.parameters]
        self.buffers: list[Tensor] = []
        self.views: list[Tensor] = [None] * len(self.parameters)  # type: ignore[list-item]  # filled below
        for dtype in {p.dtype for p in self.parameters}:
            members = [i for i, p in enumerate(self.parameters) if p.dtype == dtype]
            sizes = [-(-self.parameters[i].numel() // _ALIGNED) * _ALIGNED for i in members]
            buffer = torch.zeros(sum(sizes), dtype=dtype, device=self.parameters[members[0]].device)
            for i, part in zip(members, buffer.split(sizes)):
                p = self.parameters[i]
                self.views[i] = part[: p.numel()].view(p.shape)
            self.buffers.append(buffer)
        with torch.no_grad():
            for view, gradient in zip(self.views, found):
                view.copy_(gradient)
        for p, view in zip(self.parameters, self.views):
            p.grad = view

    def attach(self) -> None:
        """Set all gradients to 0 if fairseq has removed them. In gradient accumulation they stay as they are."""
        if not self.parameters or self.parameters[0].grad is self.views[0]:
            return
        for buffer in self.buffers:
            buffer.zero_()
        for p, view in zip(self.parameters, self.views):
            p.grad = view

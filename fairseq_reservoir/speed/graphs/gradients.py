"""Gradients at fixed addresses, so that a recorded backward pass can add to them."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

_ALIGNED = 64  # elements; kernels read whole vectors


class Gradients:
    """Buffers for gradients, one for each dtype. Each ``parameter.grad`` is replaced by a view of a buffer with the same values.

    fairseq removes all gradients before an update. ``attach`` restores the views and sets them to 0. A parameter without a gradient gets
    no view, because with a gradient of 0 an optimizer would apply weight decay to the parameter.
    """

    def __init__(self, parameters: Sequence[nn.Parameter]) -> None:
        self.parameters: list[nn.Parameter] = []
        self.views: list[Tensor] = []
        self.buffers: list[Tensor] = []
        groups: dict[torch.dtype, list[tuple[nn.Parameter, Tensor]]] = {}
        for p in parameters:
            if p.grad is not None:
                groups.setdefault(p.dtype, []).append((p, p.grad))
        for dtype, members in groups.items():
            sizes = [-(-p.numel() // _ALIGNED) * _ALIGNED for p, _ in members]
            buffer = torch.zeros(sum(sizes), dtype=dtype, device=members[0][0].device)
            for (p, gradient), part in zip(members, buffer.split(sizes)):
                view = part[: p.numel()].view(p.shape)
                p.grad = view.copy_(gradient)
                self.parameters.append(p)
                self.views.append(view)
            self.buffers.append(buffer)

    def attach(self) -> None:
        """Restore the views and set them to 0, if fairseq has removed the gradients. During gradient accumulation, do nothing.

        If an ordinary step has created new gradient tensors, their values are copied to the views.
        """
        if not self.parameters or self.parameters[0].grad is self.views[0]:
            return
        found = [p.grad for p in self.parameters]
        for buffer in self.buffers:
            buffer.zero_()
        for p, view, gradient in zip(self.parameters, self.views, found):
            if gradient is not None:
                view.copy_(gradient)
            p.grad = view

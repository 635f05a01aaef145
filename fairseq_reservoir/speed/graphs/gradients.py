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
        """Set all gradients to 0 if fairseq has removed them. In gradient accumulation they keep their values.

        An ordinary step of a batch without a bucket leaves gradients of its own. Their values are copied.
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

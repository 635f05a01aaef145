"""The label-smoothed cross entropy without a tensor of log probabilities and without a backward pass through one."""

from typing import Any

import torch
from torch import Tensor


class _LabelSmoothing(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, target: Tensor, epsilon: float, padding: int) -> tuple[Tensor, Tensor]:
        words = logits.shape[-1]
        other = epsilon / (words - 1)
        own = 1 - epsilon - other
        padded = target.eq(padding)
        place = target.unsqueeze(-1)
        p = torch.softmax(logits, -1, dtype=torch.float32)
        # log sum exp z. The largest p is at least 1 / V, so its logarithm is exact enough, where that of another may be -inf.
        normaliser = logits.amax(-1).float() - p.amax(-1).log_()
        nll = (normaliser - logits.gather(-1, place).squeeze(-1).float()).masked_fill_(padded, 0).sum()
        smooth = (words * normaliser - logits.sum(-1, dtype=torch.float32)).masked_fill_(padded, 0).sum()
        # dL/dz = p - q, where q is the smoothed target: its sum is 1.
        gradient = p.sub_(other)
        gradient.scatter_add_(-1, place, gradient.new_full(place.shape, -own))
        ctx.gradient, ctx.counted = gradient, (~padded).unsqueeze(-1)
        ctx.type = logits.dtype
        ctx.mark_non_differentiable(nll)
        return own * nll + other * smooth, nll

    @staticmethod
    def backward(ctx: Any, g: Tensor, _: Tensor) -> tuple[Tensor, None, None, None]:
        # In place: a second backward pass through the same loss is refused, as for any graph that is not retained.
        gradient, ctx.gradient = ctx.gradient, None
        return gradient.mul_(g * ctx.counted).to(ctx.type), None, None, None


def label_smoothing(logits: Tensor, target: Tensor, epsilon: float, padding: int) -> tuple[Tensor, Tensor]:
    """L = sum_t -(1 - epsilon) log p(y_t) - epsilon / (V - 1) sum_{v != y_t} log p(v), and the sum of -log p(y_t).

    As fairseq's criterion of that name (its epsilon is that of all other words together), in float32; targets equal to ``padding``
    count nothing. The gradient by logits is p - q with q the smoothed target. It is worked out in the forward pass, in the memory of
    p, and handed out once: no graph of this loss can be retained.

    Args:
        logits: (words, V), any floating type.
        target: (words,), int64.

    Returns:
        L, differentiable, and the unsmoothed loss, which is not.
    """
    losses: tuple[Tensor, Tensor] = _LabelSmoothing.apply(logits, target, epsilon, padding)  # type: ignore[no-untyped-call]  # torch's
    return losses

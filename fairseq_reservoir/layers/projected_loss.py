"""Computes the label-smoothed cross entropy of an output projection slice by slice, so that not all logits are in memory at a time."""

from typing import Any

import torch
from torch import Tensor

# Logits in memory at a time. Smaller slices would add up the gradient of the projection more often than they stay in a cache.
_LOGITS = 2**22


class _ProjectedLoss(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, features: Tensor, weight: Tensor, bias: Tensor | None, target: Tensor, epsilon: float
    ) -> tuple[Tensor, Tensor]:
        needs = ctx.needs_input_grad
        of_features = torch.empty_like(features) if needs[0] else None
        # Summed over slices, so in float32.
        of_weight = torch.zeros_like(weight, dtype=torch.float32) if needs[1] else None
        of_bias = torch.zeros_like(bias, dtype=torch.float32) if needs[2] and bias is not None else None
        # Not two views of one tensor: fairseq multiplies the loss of a process that has no batch left by 0, in place.
        loss, nll = (features.new_zeros((), dtype=torch.float32) for _ in range(2))
        rows = max(1, _LOGITS // len(weight))
        for first in range(0, len(features), rows):
            part = slice(first, first + rows)
            x = features[part]
            z = x @ weight.t() if bias is None else torch.addmm(bias, x, weight.t())
            gradient, of_part, nll_of_part = _of_logits(z, target[part], epsilon)
            loss += of_part
            nll += nll_of_part
            if any(needs):
                gradient = gradient.to(features.dtype)
            if of_features is not None:
                torch.mm(gradient, weight, out=of_features[part])
            if of_weight is not None:
                _add_product(of_weight, gradient.t(), x)
            if of_bias is not None:
                of_bias += gradient.sum(0, dtype=torch.float32)
        ctx.gradients = of_features, of_weight, of_bias
        ctx.types = features.dtype, weight.dtype, None if bias is None else bias.dtype
        ctx.mark_non_differentiable(nll)
        return loss, nll

    @staticmethod
    def backward(ctx: Any, g: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        # In place: a second backward pass through the same loss is refused, as for any graph that is not retained.
        gradients, ctx.gradients = ctx.gradients, None
        given = (None if x is None else x.mul_(g).to(dtype) for x, dtype in zip(gradients, ctx.types))
        return (*given, None, None)


def _of_logits(z: Tensor, target: Tensor, epsilon: float) -> tuple[Tensor, Tensor, Tensor]:
    """The gradient by logits, p - q, in float32, the loss and the unsmoothed loss; see ``label_smoothing``. Writes over float32 logits."""
    words, place = z.shape[-1], target.unsqueeze(-1)
    other = epsilon / (words - 1)
    own = 1 - epsilon - other
    z = z.float()
    largest, at_target, total = z.amax(-1), z.gather(-1, place).squeeze(-1), z.sum(-1) if epsilon else 0
    p = torch.softmax(z, -1, out=z)
    # log sum exp z. The largest p is at least 1 / V, so its logarithm is exact enough, where that of another may be -inf.
    normaliser = largest - p.amax(-1).log_()
    nll = (normaliser - at_target).sum()
    smooth = (words * normaliser - total).sum() if epsilon else 0.0
    gradient = p.sub_(other) if epsilon else p
    gradient.scatter_add_(-1, place, gradient.new_full(place.shape, -own))
    return gradient, own * nll + other * smooth, nll


def _add_product(total: Tensor, a: Tensor, b: Tensor) -> None:
    if a.dtype == total.dtype:
        total.addmm_(a, b)
    else:
        total += a @ b


def projected_loss(
    features: Tensor, weight: Tensor, bias: Tensor | None, target: Tensor, epsilon: float
) -> tuple[Tensor, Tensor]:
    """``label_smoothing`` of the logits ``features weight^T + bias``, every one of whose targets counts.

    Gradients are worked out in the forward pass, slice by slice, so that the logits of a batch need not be written to memory, nor
    their probabilities. They are handed out once: no graph of this loss can be retained. Not for float16, in which gradients that the
    scale of the loss has not met yet would be 0.

    Args:
        features: (words, dim), float32 or bfloat16.
        weight: (V, dim), trained or not.
        bias: (V,) or None.
        target: (words,), int64.

    Returns:
        The smoothed loss, differentiable, and the unsmoothed one, which is not, both summed in float32.
    """
    if not torch.is_grad_enabled():  # which the function below is not told; in a validation nobody wants gradients
        features, weight, bias = features.detach(), weight.detach(), None if bias is None else bias.detach()
    losses: tuple[Tensor, Tensor] = _ProjectedLoss.apply(features, weight, bias, target, epsilon)  # type: ignore[no-untyped-call]  # torch's
    return losses

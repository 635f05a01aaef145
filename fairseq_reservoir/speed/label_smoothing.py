"""Label-smoothed cross entropy that stores no log probabilities. The forward pass also computes the gradient."""

from typing import Any

import torch
from torch import Tensor


def loss_and_gradient(
    logits: Tensor, target: Tensor, epsilon: float, padded: Tensor | None = None, out: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """Compute (loss, unsmoothed loss, gradient with respect to the logits), in float32; see ``label_smoothing``.

    Args:
        logits: (tokens, V) with the vocabulary size V.
        target: (tokens,), int64.
        padded: (tokens,), true at padding. Padding has no loss, but the caller must set the gradient of these rows to 0.
        out: tensor to which the gradient is written, (tokens, V), float32; can be ``logits``.
    """
    vocabulary, place = logits.shape[-1], target.unsqueeze(-1)
    other = epsilon / (vocabulary - 1)
    own = 1 - epsilon - other
    largest, at_target = logits.amax(-1).float(), logits.gather(-1, place).squeeze(-1).float()
    total = logits.sum(-1, dtype=torch.float32) if epsilon else 0
    p = torch.softmax(logits, -1, dtype=torch.float32, out=out)
    # log sum exp z = z_max - log p_max. p_max is at least 1 / V, so its logarithm is accurate. Other entries of p may be 0.
    normaliser = largest - p.amax(-1).log_()
    nll, smooth = normaliser - at_target, vocabulary * normaliser - total
    if padded is not None:
        nll, smooth = nll.masked_fill_(padded, 0), smooth.masked_fill_(padded, 0)
    nll = nll.sum()
    # dL/dz = p - q, where q is the smoothed target. q sums to 1.
    gradient = p.sub_(other) if epsilon else p
    gradient.scatter_add_(-1, place, gradient.new_full(place.shape, -own))
    return own * nll + other * smooth.sum(), nll, gradient


class _LabelSmoothing(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, target: Tensor, epsilon: float, padding: int) -> tuple[Tensor, Tensor]:
        padded = target.eq(padding)
        loss, nll, ctx.gradient = loss_and_gradient(logits, target, epsilon, padded)
        ctx.counted, ctx.type = (~padded).unsqueeze(-1), logits.dtype
        ctx.mark_non_differentiable(nll)
        return loss, nll

    @staticmethod
    def backward(ctx: Any, g: Tensor, _: Tensor) -> tuple[Tensor, None, None, None]:
        # In place, because the backward pass runs only once. torch refuses a second one if the graph is not retained.
        gradient, ctx.gradient = ctx.gradient, None
        return gradient.mul_(g * ctx.counted).to(ctx.type), None, None, None


def label_smoothing(logits: Tensor, target: Tensor, epsilon: float, padding: int) -> tuple[Tensor, Tensor]:
    """Label-smoothed loss L = sum_t -(1 - epsilon) log p(y_t) - epsilon / (V - 1) sum_{v != y_t} log p(v), and the unsmoothed loss.

    y_t is the target of token t, and p is the softmax of its logits over a vocabulary of size V. epsilon is the total weight of all tokens
    except the target. The unsmoothed loss is sum_t -log p(y_t). Both losses equal those of fairseq's label_smoothed_cross_entropy in
    float32. Targets equal to ``padding`` have no loss. The gradient with respect to the logits is p - q, where q is the smoothed target.
    The forward pass computes the gradient in the memory of p, so the backward pass can run only once.

    Args:
        logits: (tokens, V), of any floating-point dtype.
        target: (tokens,), int64.

    Returns:
        L, and the unsmoothed loss. Only L is differentiable.
    """
    losses: tuple[Tensor, Tensor] = _LabelSmoothing.apply(logits, target, epsilon, padding)  # type: ignore[no-untyped-call]  # torch's
    return losses

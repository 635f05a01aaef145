"""Label-smoothed cross entropy of an output projection. It is computed slice by slice, so that few logits are in memory at once."""

from typing import Any

import torch
from torch import Tensor

from .label_smoothing import loss_and_gradient

# Number of logits per slice. Smaller slices would fit into a processor cache, but the gradient of the projection would need more
# additions.
_LOGITS = 2**22


class _ProjectedLoss(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, features: Tensor, weight: Tensor, target: Tensor, epsilon: float) -> tuple[Tensor, Tensor]:
        needs_features, needs_weight, *_ = ctx.needs_input_grad
        features_gradient = torch.empty_like(features) if needs_features else None
        # In float32, because this gradient is a sum over slices.
        weight_gradient = torch.zeros_like(weight, dtype=torch.float32) if needs_weight else None
        # Two tensors, not two views of one, because fairseq multiplies the loss by 0 in place on a rank without a batch.
        loss, nll = (features.new_zeros((), dtype=torch.float32) for _ in range(2))
        rows = max(1, _LOGITS // len(weight))
        for first in range(0, len(features), rows):
            part = slice(first, first + rows)
            x = features[part]
            z = (x @ weight.t()).float()
            part_loss, part_nll, gradient = loss_and_gradient(z, target[part], epsilon, out=z)
            loss += part_loss
            nll += part_nll
            if needs_features or needs_weight:
                gradient = gradient.to(features.dtype)
            if features_gradient is not None:
                torch.mm(gradient, weight, out=features_gradient[part])
            if weight_gradient is not None:
                _add_product(weight_gradient, gradient.t(), x)
        ctx.gradients, ctx.types = (features_gradient, weight_gradient), (features.dtype, weight.dtype)
        ctx.mark_non_differentiable(nll)
        return loss, nll

    @staticmethod
    def backward(ctx: Any, g: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        # In place, because the backward pass runs only once. torch refuses a second one if the graph is not retained.
        gradients, ctx.gradients = ctx.gradients, None
        given = (None if x is None else x.mul_(g).to(dtype) for x, dtype in zip(gradients, ctx.types))
        return (*given, None, None)


def _add_product(total: Tensor, a: Tensor, b: Tensor) -> None:
    if a.dtype == total.dtype:
        total.addmm_(a, b)
    else:
        total += a @ b


def projected_loss(features: Tensor, weight: Tensor, target: Tensor, epsilon: float) -> tuple[Tensor, Tensor]:
    """Compute ``label_smoothing`` of the logits ``features weight^T``, for targets without padding.

    The forward pass also computes the gradients, slice by slice, so the logits and probabilities of a batch are not stored. The backward
    pass can run only once. float16 is not supported, because gradients would underflow to 0 before they are multiplied by the loss scale.

    Args:
        features: (tokens, dim), float32 or bfloat16.
        weight: (V, dim) with the vocabulary size V, trained or not.
        target: (tokens,), int64.

    Returns:
        The smoothed and the unsmoothed loss, both summed in float32. Only the smoothed loss is differentiable.
    """
    if not torch.is_grad_enabled():  # otherwise _ProjectedLoss would compute gradients, even in a validation
        features, weight = features.detach(), weight.detach()
    losses: tuple[Tensor, Tensor] = _ProjectedLoss.apply(features, weight, target, epsilon)  # type: ignore[no-untyped-call]  # torch's
    return losses

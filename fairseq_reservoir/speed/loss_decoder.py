"""Decoder mix-in that returns the loss of the non-padding tokens instead of the logits of all positions."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..layers.replace import MixedIn
from .label_smoothing import label_smoothing
from .projected_loss import projected_loss


@dataclass(frozen=True)
class LossRequest:
    """The loss that a criterion requests from the decoder.

    Attributes:
        target: the tokens to predict, (batch, time).
        epsilon: strength of the label smoothing.
        padding: index of the padding token, which has no loss.
    """

    target: Tensor
    epsilon: float
    padding: int


_request: ContextVar[LossRequest | None] = ContextVar("_request", default=None)


@contextmanager
def returning_losses(request: LossRequest) -> Iterator[None]:
    """Inside the block, decoders with ``LossDecoder`` return (loss, unsmoothed loss) instead of logits."""
    token = _request.set(request)
    try:
        yield
    finally:
        _request.reset(token)


class LossDecoder(MixedIn):
    """Mix-in for a fairseq decoder: inside ``returning_losses``, the output layer returns the loss (``label_smoothing``).

    On a CPU, padding is not projected to the vocabulary. On a GPU, all positions are projected, as in fairseq, because selecting tokens
    would synchronise with the device. The decoder, not the criterion, computes the loss, because only the decoder is inside the wrapper
    with which fairseq sums gradients over all ranks.
    """

    # Whether the output projection is only a product with its ``weight``.
    is_product = False

    def output_layer(self, features: Tensor, **kwargs: Any) -> Any:
        request = _request.get()
        if request is None:
            return super().output_layer(features, **kwargs)
        project = self.output_projection
        if features.device.type != "cpu":
            logits, target = project(features).flatten(0, -2), request.target.flatten()
            return label_smoothing(logits, target, request.epsilon, request.padding)
        counted = request.target.ne(request.padding)
        features, target = features[counted], request.target[counted]
        if self.is_product and features.dtype in (torch.float32, torch.bfloat16):
            return projected_loss(features, project.weight, target, request.epsilon)
        return label_smoothing(project(features), target, request.epsilon, request.padding)

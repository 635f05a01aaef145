"""A decoder that gives the loss of the words that count in place of the logits of all positions."""

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
class Wanted:
    """The loss that a criterion wants: (batch, time) words to predict, those that are padding count nothing; its smoothing."""

    target: Tensor
    epsilon: float
    padding: int


_asked: ContextVar[Wanted | None] = ContextVar("asked", default=None)


@contextmanager
def losses_for(wanted: Wanted) -> Iterator[None]:
    """Until the end of the block, decoders of ``CountedWords`` give (loss, unsmoothed loss) in place of logits."""
    token = _asked.set(wanted)
    try:
        yield
    finally:
        _asked.reset(token)


class CountedWords(MixedIn):
    """To be mixed into a decoder of fairseq: what its output layer gives inside ``losses_for`` is the loss, see ``label_smoothing``.

    On a CPU only positions whose word counts are projected to the vocabulary; elsewhere all are, as in fairseq, since the host would
    have to wait until it knows how many count. It happens in the decoder, and so inside whatever fairseq wraps
    around the model to sum up the gradients of several processes.
    """

    # Whether the output projection is a product with its ``weight`` and nothing else.
    is_product = False

    def output_layer(self, features: Tensor, **kwargs: Any) -> Any:
        wanted = _asked.get()
        if wanted is None:
            return super().output_layer(features, **kwargs)
        project = self.output_projection
        if features.device.type != "cpu":
            logits, target = project(features).flatten(0, -2), wanted.target.flatten()
            return label_smoothing(logits, target, wanted.epsilon, wanted.padding)
        counted = wanted.target.ne(wanted.padding)
        features, target = features[counted], wanted.target[counted]
        if self.is_product and features.dtype in (torch.float32, torch.bfloat16):
            return projected_loss(features, project.weight, target, wanted.epsilon)
        return label_smoothing(project(features), target, wanted.epsilon, wanted.padding)

"""A decoder that gives the loss of the words that count in place of the logits of all positions."""

from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

import torch
from torch import Tensor

from .label_smoothing import label_smoothing
from .projected_loss import projected_loss

_asked = ContextVar("asked", default=None)


@dataclass(frozen=True)
class Wanted:
    """The loss that a criterion wants: (batch, time) words to predict, those that are padding count nothing; its smoothing."""

    target: Tensor
    epsilon: float
    padding: int


@contextmanager
def losses_for(wanted: Wanted):
    """Until the end of the block, decoders of ``CountedWords`` give (loss, unsmoothed loss) in place of logits."""
    token = _asked.set(wanted)
    try:
        yield
    finally:
        _asked.reset(token)


class CountedWords:
    """To be mixed into a decoder of fairseq: what its output layer gives inside ``losses_for`` is the loss, see ``label_smoothing``.

    Only positions whose word counts are projected to the vocabulary. It happens in the decoder, and so inside whatever fairseq wraps
    around the model to sum up the gradients of several processes.
    """

    # Whether the output projection is a product with its ``weight`` and nothing else.
    is_product = False

    def output_layer(self, features, **kwargs):
        wanted = _asked.get()
        if wanted is None:
            return super().output_layer(features, **kwargs)
        counted = wanted.target.ne(wanted.padding)
        features, target = features[counted], wanted.target[counted]
        project = self.output_projection
        if self.is_product and features.device.type == "cpu" and features.dtype in (torch.float32, torch.bfloat16):
            return projected_loss(features, project.weight, None, target, wanted.epsilon)
        return label_smoothing(project(features), target, wanted.epsilon, wanted.padding)

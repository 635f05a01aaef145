"""Deliberate mistakes that no CPU shows, to test that the fake device detects them."""

from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass
from unittest.mock import patch

import torch
from torch.utils.data import DataLoader

from fairseq_reservoir.layers.feed_forward import FeedForward
from fairseq_reservoir.masks.masked_weight import MaskCache

from .reads import OURS
from .recorded import forgetting_tensors


@dataclass(frozen=True)
class Plant:
    """A mistake. ``make`` is a context in which it happens, and ``seen`` is part of the problem that must be reported.

    ``in_masks`` is true if it happens in the selection of masks, and false if in a feed-forward layer.
    ``more``: further flags.
    """

    make: Callable
    seen: str
    in_masks: bool = False
    more: str = ""
    updates: int = 1


def _mistake(owner, name, before):
    """Run ``before(first argument, its tensor or members)`` before each call of a method, as if it were part of the package."""

    @contextmanager
    def make():
        source = f"def {name}(self, x, *args):\n    x = before(self, x)\n    return original(self, x, *args)\n"
        scope = {"before": before, "original": getattr(owner, name)}
        exec(compile(source, f"{OURS}/planted.py", "exec"), scope)
        with patch.object(owner, name, scope[name]):
            yield

    return make


@contextmanager
def _without_pinning():
    """Make every data loader ignore pinned memory."""
    original = DataLoader.__init__

    def begin(self, *args, pin_memory=False, **kwargs):
        original(self, *args, **kwargs)

    with patch.object(DataLoader, "__init__", begin):
        yield


def _reads_scores(cache, members):
    float(members[0].scores.sum())
    return members


def _lists_scores(cache, members):
    members[0].scores.detach().tolist()
    return members


def _selects(layer, x):
    return x + x[x > 0].sum()


PLANTS = {
    "a recording that frees what it reads": Plant(
        forgetting_tensors, "memory that has been freed", more="--cuda-graphs", updates=5
    ),
    "a buffer on the CPU": Plant(
        _mistake(FeedForward, "transform", lambda self, x: x + torch.ones(x.shape[-1])), "cpu"
    ),
    "a copy to the CPU": Plant(
        _mistake(FeedForward, "transform", lambda self, x: x + x.cpu().to(x.device)), "a copy to cpu"
    ),
    "a mask as an index": Plant(_mistake(FeedForward, "transform", _selects), "a mask as an index"),
    "batches outside pinned memory": Plant(_without_pinning, "not in pinned memory"),
    "item() in the update of masks": Plant(_mistake(MaskCache, "_select", _reads_scores), "a value", in_masks=True),
    "tolist() in the update of masks": Plant(_mistake(MaskCache, "_select", _lists_scores), "a value", in_masks=True),
}

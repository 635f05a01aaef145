"""``--checkpoint-activations`` with frozen layers: what is trained above them is trained, and they are not run again."""

import functools

import torch
from fairseq.modules import checkpoint_activations

_recomputed = checkpoint_activations._checkpointed_forward


def install() -> None:
    """Lets fairseq wrap the layers of every model with ``checkpointed_forward``; a second call does nothing."""
    checkpoint_activations._checkpointed_forward = checkpointed_forward


def checkpointed_forward(forward, offload, *args, **kwargs):
    """Runs a layer, and again in the backward pass if its first input has a gradient or something in it is trained.

    fairseq's own gives no gradient to a layer of which no input has one, not even to its parameters: above frozen embeddings a
    layer is silently not trained. Such a layer gets one more input that has a gradient, and ignores it. What is trained is asked
    at every call, since freeze schedules change it.
    """
    first = next(iter((*args, *kwargs.values())), None)
    if not torch.is_grad_enabled() or getattr(first, "requires_grad", False):
        return _recomputed(forward, offload, *args, **kwargs)
    # Only of a wholly frozen layer is it no method any more: see frozen_dtype.
    layer = getattr(forward, "__self__", None)
    if layer is None or not any(parameter.requires_grad for parameter in layer.parameters()):
        return forward(*args, **kwargs)
    marker = torch.zeros((), requires_grad=True)
    return _recomputed(functools.partial(_without_marker, forward), offload, marker, *args, **kwargs)


def _without_marker(forward, _, *args, **kwargs):
    return forward(*args, **kwargs)

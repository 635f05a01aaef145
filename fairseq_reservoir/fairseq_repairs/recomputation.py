"""Makes ``--checkpoint-activations`` train layers above frozen ones, and skips recomputing frozen ones."""

import functools

import torch
from fairseq.modules import checkpoint_activations

from .repair import repair, wrap


@repair("recomputation")
def recompute_what_is_trained() -> None:
    """Let ``--checkpoint-activations`` train layers above frozen ones, and recompute no frozen ones."""
    wrap(checkpoint_activations, "_checkpointed_forward", checkpointed_forward)


def checkpointed_forward(original, forward, offload, *args, **kwargs):
    """Runs a layer, and again in the backward pass if its first input has a gradient or something in it is trained.

    fairseq's own gives no gradient to a layer of which no input has one, not even to its parameters: above frozen embeddings a
    layer is silently not trained. Such a layer gets one more input that has a gradient, and ignores it. What is trained is asked
    at every call, since freeze schedules change it.
    """
    first = next(iter((*args, *kwargs.values())), None)
    if not torch.is_grad_enabled() or getattr(first, "requires_grad", False):
        return original(forward, offload, *args, **kwargs)
    # Only of a wholly frozen layer is it no method any more: see frozen_dtype.
    layer = getattr(forward, "__self__", None)
    if layer is None or not any(parameter.requires_grad for parameter in layer.parameters()):
        return forward(*args, **kwargs)
    marker = torch.zeros((), requires_grad=True)
    return original(functools.partial(_without_marker, forward), offload, marker, *args, **kwargs)


def _without_marker(forward, _, *args, **kwargs):
    return forward(*args, **kwargs)

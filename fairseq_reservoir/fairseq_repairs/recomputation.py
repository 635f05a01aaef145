"""Repair of ``--checkpoint-activations``: train layers above frozen ones, and do not recompute frozen ones."""

import functools

import torch
from fairseq.modules import checkpoint_activations

from .repair import repair, wrap


@repair("recomputation")
def recompute_what_is_trained() -> None:
    """Let ``--checkpoint-activations`` train layers above frozen ones, and recompute no frozen ones."""
    wrap(checkpoint_activations, "_checkpointed_forward", checkpointed_forward)


def checkpointed_forward(original, forward, offload, *args, **kwargs):
    """Run a layer, and again in the backward pass if its first input has a gradient or it has a trained parameter.

    fairseq computes no gradient for a layer if none of its inputs has one, not even for its parameters: above frozen embeddings a layer
    is silently not trained. Such a layer gets one more input, with a gradient, that it ignores. The trained parameters are determined at
    every call, because freeze schedules change them.
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

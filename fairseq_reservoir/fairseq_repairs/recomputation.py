"""Repair of ``--checkpoint-activations``: train layers above frozen layers, and do not recompute frozen layers."""

import functools

import torch
from fairseq.modules import checkpoint_activations

from .repair import repair, wrap


@repair("recomputation")
def recompute_what_is_trained() -> None:
    """Let ``--checkpoint-activations`` train layers above frozen layers, without recomputing frozen layers."""
    wrap(checkpoint_activations, "_checkpointed_forward", checkpointed_forward)


def checkpointed_forward(original, forward, offload, *args, **kwargs):
    """Run a layer. If the first input requires a gradient or the layer has a trained parameter, the backward pass runs the layer again.

    If no input of a layer requires a gradient, fairseq computes no gradients for the layer's parameters. A layer above frozen embeddings is
    then not trained. This hook gives such a layer an unused input that requires a gradient. The hook checks for trained parameters at every
    call, because freeze schedules change which parameters are trained.
    """
    first = next(iter((*args, *kwargs.values())), None)
    if not torch.is_grad_enabled() or getattr(first, "requires_grad", False):
        return original(forward, offload, *args, **kwargs)
    # If ``forward`` is not a method, the whole layer is frozen; see frozen_dtype.
    layer = getattr(forward, "__self__", None)
    if layer is None or not any(parameter.requires_grad for parameter in layer.parameters()):
        return forward(*args, **kwargs)
    marker = torch.zeros((), requires_grad=True)
    return original(functools.partial(_without_marker, forward), offload, marker, *args, **kwargs)


def _without_marker(forward, _, *args, **kwargs):
    return forward(*args, **kwargs)

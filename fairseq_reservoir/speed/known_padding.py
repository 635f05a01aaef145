"""Compute ``tokens.eq(padding).any()`` on the host, so that an update does not wait for the device.

In each layer, fairseq's encoder checks whether a batch has padding. fairseq's decoder checks this once per batch. On a GPU, each check
waits until the GPU has finished all earlier work. The data loader's copy of the batch is on the CPU, where the check takes microseconds.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor

# Token tensors of a batch that fairseq's encoders, decoders and criteria check for padding.
TOKENS = ("src_tokens", "prev_output_tokens", "target")


def mark(sample: Mapping[str, Any], host: Mapping[str, Any] | None = None, *, always: bool = False) -> None:
    """Mark the token tensors of a batch on a device, so that ``tokens.eq(i).any()`` needs no copy to the host.

    ``tokens.eq(i)`` is computed on the device as before. Only ``tokens.eq(i).any()`` is a tensor on the CPU. Its method ``type_as(x)``
    creates the result on the device of x, so nothing is copied from the CPU. The token tensors get instance attributes, not a new class, so
    that all operations run at their usual speed. Results of operations, such as slices, are plain tensors.

    Args:
        sample: the batch on the device, as fairseq's collaters build it. Its token tensors are changed in place.
        host: the same batch on the CPU. If it is missing, or is on the device too, nothing is marked.
        always: make ``any()`` return True in every case. ``host`` is not read, and later changes of the tokens do not matter. A CUDA
            graph replays the same operations for all batches, so these operations must always use the padding masks.
    """
    before = _tokens(host or {})
    for name, tokens in _tokens(sample).items():
        copy = None if always else before.get(name)
        is_known = always or copy is not None and copy.device.type == "cpu"
        if is_known and tokens.device.type != "cpu":
            # detach() makes an alias. A tensor that refers to itself would be freed only by Python's garbage collector.
            tokens.eq = partial(_eq, tokens.detach(), copy)
            tokens.host_copy = copy


def host_copy(tokens: Tensor) -> Tensor | None:
    """Return the CPU copy of tokens that ``mark`` has marked. None if the tokens are not marked, or are marked with ``always``."""
    return getattr(tokens, "host_copy", None)


def _tokens(sample):
    found = {**(sample.get("net_input") or {}), "target": sample.get("target")}
    return {name: found[name] for name in TOKENS if isinstance(found.get(name), Tensor)}


def _eq(tokens, copy, other):
    mask = tokens.eq(other)
    mask.any = partial(_any, mask.detach(), copy, other)
    return mask


def _any(mask, copy, other, *args, **kwargs):
    if args or kwargs:
        return mask.any(*args, **kwargs)
    found = True if copy is None else bool(copy.eq(other).any())
    answer = torch.tensor(found)
    answer.type_as = partial(_filled, found)
    return answer


def _filled(found, x):
    return torch.full((), found, dtype=x.dtype, device=x.device)

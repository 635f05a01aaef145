"""Pad a batch to the shape of a bucket. This runs on the host, before the batch is copied to the device."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .buckets import smallest
from .packed import pack

# Keys of a padded batch: its bucket, and its numbers of tokens before and after padding.
BUCKET, TOKENS = "bucket", "tokens"
# The key of a padded batch of a masked language model: its predicted positions (``masked_places``).
MASKED = "masked"
_KEYS = {"id", "nsentences", "ntokens", "net_input", "target"}
# Inputs of models. The number is their value in an added row; None for inputs of tokens.
_INPUTS = {"src_tokens": None, "prev_output_tokens": None, "src_lengths": 1, "src_id": 0}
_PLACES = 64  # predicted positions of a batch are padded to a multiple of this number


def shape_of(sample: Mapping[str, Any]) -> tuple[int, ...] | None:
    """Return (sentences, source length, target length) of a translation batch, or (sentences, length) of a language model's batch.

    Return None if the batch cannot be padded, because it has inputs such as alignments or constraints, or tensors that are not int64.
    """
    if not sample or not sample.keys() <= _KEYS or not sample["net_input"].keys() <= _INPUTS.keys():
        return None
    tensors = [value for value in (*sample.values(), *sample["net_input"].values()) if isinstance(value, Tensor)]
    if any(tensor.dtype != torch.int64 or tensor.device.type != "cpu" for tensor in tensors):
        return None
    source, target = sample["net_input"]["src_tokens"], sample.get("target")
    if not torch.is_tensor(target) or target.dim() != 2 or len(target) != len(source):
        return None
    if "prev_output_tokens" in sample["net_input"]:
        return (*source.shape, target.shape[1])
    return tuple(source.shape) if source.shape == target.shape else None


def pad(sample: Mapping[str, Any], bucket: tuple[int, ...], padding: int, end: int) -> dict[str, Any]:
    """Pad the tokens of a batch to a bucket. ``ntokens`` and ``nsentences`` of the batch do not change.

    Source sentences are padded on the side on which the batch already has padding. An added sentence has one end-of-sentence token as
    source and as decoder input, because attention returns NaN for a sentence that is all padding. The targets of an added sentence are
    padding, so it has no loss and no gradient.

    Args:
        sample: a batch on the host. Its shape (``shape_of``) fits into the bucket.
        bucket: (sentences, source length, target length), or (sentences, length).
        padding, end: indices of the padding and of the end-of-sentence token.

    Returns:
        A new batch with the entry ``BUCKET``. ``sample`` is not changed.
    """
    rows, inputs = bucket[0], dict(sample["net_input"])
    source = inputs["src_tokens"]
    left = bool(source[:, 0].eq(padding).any())
    inputs["src_tokens"] = _grown(source, (rows, bucket[1]), padding, end, left)
    for name, fill in _INPUTS.items():
        if name in inputs and fill is not None:
            inputs[name] = _grown(inputs[name], (rows,), fill, None, False)
    if "prev_output_tokens" in inputs:
        inputs["prev_output_tokens"] = _grown(inputs["prev_output_tokens"], (rows, bucket[2]), padding, end, False)
    target = _grown(sample["target"], (rows, bucket[-1]), padding, None, left and len(bucket) == 2)
    padded = {**sample, "net_input": inputs, "target": target, BUCKET: bucket}
    if "id" in sample:
        padded["id"] = _grown(sample["id"], (rows,), -1, None, False)
    return padded


def _grown(x: Tensor, shape: tuple[int, ...], fill: int, end: int | None, left: bool) -> Tensor:
    """Copy x into the first rows of a tensor of ``shape``. In new rows, ``end`` is the first token, or the last one if ``left``."""
    grown = torch.full(shape, fill, dtype=x.dtype)
    if x.dim() == 1:
        grown[: len(x)] = x
        return grown
    first = shape[1] - x.shape[1] if left else 0
    grown[: len(x), first : first + x.shape[1]] = x
    if end is not None:
        grown[len(x) :, -1 if left else 0] = end
    return grown


def masked_places(target: Tensor, padding: int, share: float) -> dict[str, Any] | None:
    """Find the positions of the tokens that a masked language model predicts. The size of the result depends only on the batch's shape.

    Args:
        target: (sentences, length), on the host; ``padding`` at tokens that are not predicted.
        padding: index of the padding token.
        share: expected fraction of predicted tokens, ``--mask-prob``.

    Returns:
        ``index``: (places,), positions in the flattened batch. ``labels``: (places,), the targets at these positions. Unused places have
        position 0 and the label ``padding``. ``count``: the number of predicted tokens. If there are more predicted tokens than places,
        the function returns None.
    """
    places = -(-int(target.numel() * share * 1.1 + _PLACES) // _PLACES) * _PLACES
    found = target.flatten().ne(padding).nonzero().squeeze(1)
    if len(found) > places:
        return None
    index = torch.zeros(places, dtype=torch.int64)
    labels = torch.full((places,), padding, dtype=target.dtype)
    index[: len(found)] = found
    labels[: len(found)] = target.flatten()[found]
    return {"index": index, "labels": labels, "count": len(found)}


@dataclass
class Padder:
    """Pads batches to the cheapest bucket that holds them, and packs them.

    Attributes:
        buckets: (k, d), as ``buckets.choose`` returns them.
        padding, end: indices of the padding and of the end-of-sentence token.
        share: ``--mask-prob`` of a masked language model; None for all other models.
    """

    buckets: np.ndarray[Any, Any]
    padding: int
    end: int
    share: float | None = None

    def __call__(self, sample: Any) -> Any:
        """Return a ``PackedBatch``, or the unchanged batch if no bucket holds it."""
        shape = shape_of(sample) if isinstance(sample, Mapping) else None
        place = None if shape is None else smallest(self.buckets, shape)
        if shape is None or place is None:
            return sample
        bucket = tuple(map(int, self.buckets[place]))
        padded = pad(sample, bucket, self.padding, self.end)
        if self.share is not None:
            places = masked_places(padded["target"], self.padding, self.share)
            if places is None:
                return sample
            padded[MASKED] = places
        padded[TOKENS] = shape[0] * sum(shape[1:]), bucket[0] * sum(bucket[1:])
        return pack(padded)

"""Selection of mask entries: an exact selection of the largest scores.

A mask keeps the ``keep_count(keep_ratio, n)`` largest of n scores. If scores are equal, the ones with the lowest indices are
kept. A NaN ranks as an infinite score, so that the number of kept scores is exact. ``masked_weight.nan_scores`` finds tensors
with NaN.

On the CPU the k-th largest score is found without sorting all scores (Floyd and Rivest, 1975). A sorted sample gives a lower
and an upper bound of the score. One pass counts the scores below the lower bound, and only the scores between both bounds are
partitioned. The result is exact even if the score is outside the bounds. NVIDIA GPUs use ``radix_selection`` if triton is
installed. Other devices, and triton's failures, use one batched ``topk``. Both never synchronise with the host.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..plan.mask_choices import MaskChoices, Ratio, keep_count
from . import radix_selection

Array = np.ndarray[Any, Any]

_SAMPLE = 4096
_LEAST = 10  # with scope "global", each tensor keeps at least 1/10 of its proportional share, rounded down


def select_masks(
    scores: Sequence[Tensor],
    choices: MaskChoices,
    ratios: Sequence[Ratio],
    size: int | None = None,
    pinned: Sequence[int] | None = None,
) -> list[Tensor]:
    """Select masks. A mask has 1 at the largest scores. Masks of several keep ratios are added up.

    In a signed mask, entries have the sign of their score.

    Args:
        scores: score tensors of one shape, or of any shape with scope ``global``.
        choices: choices of the masks.
        ratios: current keep ratios (``MaskChoices.keep_ratios_at``).
        size: number of entries to which a ratio applies, including pinned entries without a score. The default is the number
            of scores that are ranked together: those of a tensor, of a row (last dimension) or of all tensors.
        pinned: number of kept pinned entries for each ratio. They count towards the ratio.

    Returns:
        Masks of the scores' shapes: bool, or int8 if signed or of several ratios.
    """
    rows = [s.reshape(-1, s.shape[-1] if choices.scope == "row" else s.numel()) for s in scores]
    together, magnitude = choices.scope == "global", choices.ranking == "magnitude"
    ranked = sum(row.shape[1] for row in rows) if together else rows[0].shape[1]
    size = ranked if size is None else size
    kept = pinned or [0] * len(ratios)
    counts = [min(max(0, keep_count(ratio, size) - already), ranked) for ratio, already in zip(ratios, kept)]
    if together:
        masks = [_sum(coats) for coats in zip(*(_select_together(rows, count, magnitude) for count in counts))]
    else:
        masks = select_largest(rows, counts, magnitude)
    masks = [mask.reshape(s.shape) for mask, s in zip(masks, scores)]
    return [_with_signs(mask, s) for mask, s in zip(masks, scores)] if choices.kind == "signed" else masks


def _select_together(rows: list[Tensor], count: int, magnitude: bool) -> list[Tensor]:
    """Select ``count`` scores of all rows together; rows and results: (1, n) each, n may differ.

    First, each row's largest scores up to the minimum share of the row are selected, in one call for rows of equal length. Then
    the largest scores of all rows are selected.
    """
    sizes = [row.shape[1] for row in rows]
    alike: dict[Any, list[Tensor]] = {}
    for row in rows:
        alike.setdefault((row.shape, row.dtype), []).append(row)
    least = {
        kind: iter(select_largest(some, [count * kind[0][1] // (_LEAST * sum(sizes))], magnitude))
        for kind, some in alike.items()
    }
    keys = []
    for row in rows:
        first, key = next(least[row.shape, row.dtype]), row.detach().float()
        keys.append((key.abs() if magnitude else key).masked_fill(first, math.inf))
    return list(select_largest([torch.cat(keys, 1)], [count], magnitude=False)[0].split(sizes, 1))


def _with_signs(mask: Tensor, scores: Tensor) -> Tensor:
    """Give mask entries the sign of their score: int8. A score of 0 counts as positive, so that every kept entry stays nonzero."""
    mask = mask.to(torch.int8)
    return torch.where(scores.detach() < 0, -mask, mask)


def select_largest(rows: list[Tensor], counts: list[int], magnitude: bool = True) -> list[Tensor]:
    """Select the largest entries of each row: 1 at the ``counts[0]`` largest, plus 1 at the ``counts[1]`` largest, and so on.

    Args:
        rows: tensors of one shape (number of rows, n), one dtype and one device.
        counts: numbers of entries to keep, 0 to n each.
        magnitude: rank |entry| instead of the entry.

    Returns:
        Masks of the same shape: bool for one count, int8 for several.
    """
    if rows[0].device.type != "cpu":
        return _by_radix(rows, counts, magnitude) or _together_on_device(rows, counts, magnitude)
    masks: list[Tensor] = []
    scratch: Array | None = None
    for row in rows:
        row = row.detach()
        values: Array = (row.float() if row.dtype in (torch.half, torch.bfloat16) else row).numpy()
        scratch = np.empty_like(values) if scratch is None else scratch
        values = np.abs(values, out=scratch) if magnitude else values
        if values.size and np.isnan(values.max()):
            values = np.nan_to_num(values, nan=np.inf, posinf=np.inf, neginf=-np.inf)
        masks.append(_sum([torch.from_numpy(_select_on_cpu(values, count)) for count in counts]))
    return masks


def _sum(masks: Sequence[Tensor]) -> Tensor:
    whole = masks[0] if len(masks) == 1 else masks[0].to(torch.int8)
    for mask in masks[1:]:
        whole = whole + mask.to(torch.int8)
    return whole


def _by_radix(rows: list[Tensor], counts: list[int], magnitude: bool) -> list[Tensor] | None:
    """``select_largest`` in Triton's kernels, or None if they cannot be used."""
    if not radix_selection.is_usable(rows[0]):
        return None
    scores = rows[0] if len(rows) == 1 else torch.stack(rows)
    mask = radix_selection.try_select(scores.reshape(-1, scores.shape[-1]), counts, magnitude)
    return None if mask is None else list(mask.reshape(len(rows), *rows[0].shape).unbind())


def _together_on_device(rows: list[Tensor], counts: list[int], magnitude: bool) -> list[Tensor]:
    """Version of ``select_largest`` in torch for devices: one selection of all rows for each count."""
    shape = rows[0].shape
    keys = torch.stack(rows).detach().reshape(-1, shape[1])  # a copy, so the in-place operations below are safe
    keys = keys.float() if keys.dtype in (torch.half, torch.bfloat16) else keys
    keys = keys.abs_() if magnitude else keys
    keys.nan_to_num_(nan=math.inf, posinf=math.inf, neginf=-math.inf)
    mask = _sum([_select_on_device(keys, count) for count in counts])
    return list(mask.reshape(len(rows), *shape).unbind())


def _select_on_device(keys: Tensor, count: int) -> Tensor:
    """Select the ``count`` largest entries of each row; (rows, n) -> bool (rows, n).

    The shape of every result is known on the host, so that nothing synchronises with the device. The k-th largest entry is the
    (n - k + 1)-th smallest. ``topk`` needs 12 bytes for each entry that it returns, so the smaller of both numbers is used.
    """
    n = keys.shape[1]
    if count in (0, n):
        return torch.full_like(keys, bool(count), dtype=torch.bool)
    if count <= n // 2:
        threshold = torch.topk(keys, count, dim=1, sorted=False).values.amin(1, keepdim=True)
    else:
        threshold = torch.topk(keys, n - count + 1, dim=1, largest=False, sorted=False).values.amax(1, keepdim=True)
    above, tied = keys > threshold, keys == threshold
    # int32 cannot overflow within a row. By default torch would use int64, and more memory.
    missing = count - above.sum(1, keepdim=True, dtype=torch.int32)
    tied &= tied.to(torch.int32).cumsum_(1) <= missing
    return above.logical_or_(tied)


def _select_on_cpu(keys: Array, count: int) -> Array:
    """NumPy version of ``_select_on_device``. Reading a value on the CPU does not synchronise a device, so we can stop early."""
    n = keys.shape[1]
    if count in (0, n):
        return np.full(keys.shape, bool(count))
    if n <= 4 * _SAMPLE:
        threshold = np.partition(keys, n - count, axis=1)[:, n - count, None]
    else:
        threshold = np.array([[_kth_largest(row, count)] for row in keys])
    mask = keys >= threshold
    excess = np.count_nonzero(mask, axis=1) - count
    for row in np.flatnonzero(excess):
        tied = np.flatnonzero(keys[row] == threshold[row])
        mask[row, tied[-excess[row] :]] = False
    return mask


def _kth_largest(keys: Array, k: int) -> Any:
    """The k-th largest of a long vector without NaN."""
    rank = len(keys) - k
    # An odd stride, because an even one may sample a single column of a matrix.
    sample = np.sort(keys[:: (len(keys) // _SAMPLE) | 1])
    centre, margin = rank / len(keys) * len(sample), 2 * math.sqrt(len(sample))
    first, last = math.floor(centre - margin), math.ceil(centre + margin)
    low = sample[first] if first >= 0 else -np.inf
    high = sample[last] if last < len(sample) else np.inf
    below = int(np.count_nonzero(keys < low))
    inside = keys[np.flatnonzero((keys >= low) & (keys <= high))]
    if below <= rank < below + len(inside):
        keys, rank = inside, rank - below
    return np.partition(keys, rank)[rank]

"""Selection of the mask entries with the largest scores. The number of selected entries is always exact.

A mask keeps the ``keep_count(keep_ratio, n)`` largest of n scores. Among equal scores, those with the lowest indices are kept. A
NaN ranks as an infinite score. ``masked_weight.nan_scores`` finds tensors with NaN.

On the CPU the k-th largest score is found without sorting all scores (Floyd and Rivest, 1975). A sorted sample gives a lower and
an upper bound of this score. One pass counts the scores below the lower bound, and only the scores between the bounds are
partitioned. The result is exact even if the k-th largest score is outside the bounds. NVIDIA GPUs use ``radix_selection`` if triton is
installed and does not fail. All other devices use one batched ``topk``. Neither ``radix_selection`` nor ``topk`` synchronises with the
host.
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
    """Select masks that are 1 at the largest scores. The masks of several keep ratios are added up.

    In a signed mask, each 1 has the sign of its score.

    Args:
        scores: score tensors of one shape, or of any shapes with scope ``global``.
        choices: settings of the masks.
        ratios: current keep ratios (``MaskChoices.keep_ratios_at``).
        size: number of entries to which the ratios apply. It includes pinned entries without a score. The default is the number of scores
            that are ranked together: all scores of a tensor, of a row (last dimension), or of all tensors.
        pinned: for each ratio, the number of pinned entries that are kept. They count towards the ratio.

    Returns:
        A mask for each score tensor: bool, or int8 if it is signed or there are several ratios.
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
    """Select the ``count`` largest scores of all rows together. Each row and its mask have a shape (1, n); n may differ between rows.

    First, the minimum share of each row is selected, in one call for all rows of equal length. Then the largest of the other scores are
    selected.
    """
    sizes = [row.shape[1] for row in rows]
    by_shape: dict[Any, list[Tensor]] = {}
    for row in rows:
        by_shape.setdefault((row.shape, row.dtype), []).append(row)
    least = {
        kind: iter(select_largest(some, [count * kind[0][1] // (_LEAST * sum(sizes))], magnitude))
        for kind, some in by_shape.items()
    }
    keys = []
    for row in rows:
        first, key = next(least[row.shape, row.dtype]), row.detach().float()
        keys.append((key.abs() if magnitude else key).masked_fill(first, math.inf))
    return list(select_largest([torch.cat(keys, 1)], [count], magnitude=False)[0].split(sizes, 1))


def _with_signs(mask: Tensor, scores: Tensor) -> Tensor:
    """Give each mask entry the sign of its score, where 0 counts as positive. The result is int8."""
    mask = mask.to(torch.int8)
    return torch.where(scores.detach() < 0, -mask, mask)


def select_largest(rows: list[Tensor], counts: list[int], magnitude: bool = True) -> list[Tensor]:
    """Select the largest entries of each row. Each number k in ``counts`` adds 1 to the mask at the k largest entries.

    Args:
        rows: tensors of one shape (number of rows, n), one dtype and one device.
        counts: numbers of entries to keep, each from 0 to n.
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
    """Run ``select_largest`` in Triton kernels. Return None if the kernels cannot be used."""
    if not radix_selection.is_usable(rows[0]):
        return None
    scores = rows[0] if len(rows) == 1 else torch.stack(rows)
    mask = radix_selection.try_select(scores.reshape(-1, scores.shape[-1]), counts, magnitude)
    return None if mask is None else list(mask.reshape(len(rows), *rows[0].shape).unbind())


def _together_on_device(rows: list[Tensor], counts: list[int], magnitude: bool) -> list[Tensor]:
    """Run ``select_largest`` in torch on a device. For each count, one call selects in all rows."""
    shape = rows[0].shape
    keys = torch.stack(rows).detach().reshape(-1, shape[1])  # a copy, so the in-place operations below are safe
    keys = keys.float() if keys.dtype in (torch.half, torch.bfloat16) else keys
    keys = keys.abs_() if magnitude else keys
    keys.nan_to_num_(nan=math.inf, posinf=math.inf, neginf=-math.inf)
    mask = _sum([_select_on_device(keys, count) for count in counts])
    return list(mask.reshape(len(rows), *shape).unbind())


def _select_on_device(keys: Tensor, count: int) -> Tensor:
    """Select the ``count`` largest entries of each row, as a mask of type bool; (rows, n) -> (rows, n).

    The host knows all shapes, so it never waits for the device. The k-th largest entry is also the (n - k + 1)-th smallest. The smaller of
    k and n - k + 1 is used, because ``topk`` needs 12 bytes for each entry that it returns.
    """
    n = keys.shape[1]
    if count in (0, n):
        return torch.full_like(keys, bool(count), dtype=torch.bool)
    if count <= n // 2:
        threshold = torch.topk(keys, count, dim=1, sorted=False).values.amin(1, keepdim=True)
    else:
        threshold = torch.topk(keys, n - count + 1, dim=1, largest=False, sorted=False).values.amax(1, keepdim=True)
    above, tied = keys > threshold, keys == threshold
    # int32 cannot overflow within a row. torch's default, int64, needs more memory.
    missing = count - above.sum(1, keepdim=True, dtype=torch.int32)
    tied &= tied.to(torch.int32).cumsum_(1) <= missing
    return above.logical_or_(tied)


def _select_on_cpu(keys: Array, count: int) -> Array:
    """NumPy version of ``_select_on_device``. Reading a value on the CPU costs nothing, so unnecessary work is skipped."""
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
    """Find the k-th largest entry of a long vector without NaN."""
    rank = len(keys) - k
    # The stride is odd, because an even stride could sample a single column of a matrix.
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

"""Exact top-k masks with a straight-through gradient.

A mask keeps the ``keep_count(keep_ratio, n)`` largest of n scores. Equal scores are kept in the order of their indices,
the lowest first. A NaN ranks as an infinite score, so the number kept is right also then; ``mask_cache.nan_scores``
names the tensors that hold one.

On the CPU the k-th largest score is found without a sort: a sorted sample brackets it, one pass counts what lies below the
bracket, and only what lies inside is partitioned (Floyd and Rivest, 1975). A sample that misses costs time, never
exactness. On other devices one batched ``topk`` finds it, and the host never waits for the device.
"""

import math
from fractions import Fraction

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

SCOPES = ("tensor", "row", "global")
RANKINGS = ("magnitude", "value")

_SAMPLE = 4096


def keep_count(keep_ratio: float | str | Fraction, n: int) -> int:
    """``max(1, floor(keep_ratio * n + 1/2))``, the ratio read as the decimal it is written as.

    Raises:
        ValueError: if the ratio is outside (0, 1].
    """
    try:
        ratio = Fraction(str(keep_ratio))
    except ValueError:
        ratio = 0
    if not 0 < ratio <= 1:
        raise ValueError(f"keep ratio {keep_ratio}: must be a number greater than 0 and at most 1")
    return max(1, math.floor(ratio * n + Fraction(1, 2)))


def topk_mask(scores, keep_ratio, *, scope="tensor", ranking="magnitude", signed=False):
    """The mask of the largest scores, in the scores' type and differentiable in them.

    The gradient of the scores is that of the mask, times sign(scores) where the magnitude ranks an unsigned mask, also
    where the mask is 0 (Ramanujan et al., 2020).

    Args:
        scores: a tensor, or a list of tensors: of one shape, selected in one call; with ``global``, of any shape.
        keep_ratio: share of entries kept, or several strictly descending ones: the masks of all of them are nested and
            summed (multicoated masks; Okoshi et al., 2022).
        scope: what the ratio is of: each ``tensor``, each ``row`` (last dimension), or all tensors together (``global``).
        ranking: ``magnitude`` ranks |score|, ``value`` the score.
        signed: multiply the mask by -1 where the score is negative; ranks magnitudes only.

    Returns:
        A mask of the scores' shape, or a list of them.

    Raises:
        ValueError: for a ratio outside (0, 1], ratios that do not descend, or an unknown scope or ranking.
    """
    ratios = check_ratios(keep_ratio)
    if scope not in SCOPES or ranking not in RANKINGS:
        raise ValueError(f"scope {scope}, ranking {ranking}: scopes are {SCOPES}, rankings are {RANKINGS}")
    if signed and ranking == "value":
        raise ValueError("ranking value: a signed mask ranks magnitudes")
    tensors = [scores] if isinstance(scores, Tensor) else list(scores)
    if scope == "global":
        rows = [torch.cat([t.detach().reshape(-1) for t in tensors])[None]]
    else:
        rows = [t.detach().reshape(-1, t.shape[-1] if scope == "row" and t.dim() else t.numel()) for t in tensors]
    counts = [keep_count(ratio, rows[0].shape[1]) for ratio in ratios]
    masks = select_largest(rows, counts, magnitude=ranking == "magnitude")
    if scope == "global":
        masks = masks[0][0].split([t.numel() for t in tensors])
    masks = [m.reshape(t.shape) for m, t in zip(masks, tensors)]
    if signed:
        masks = [with_signs(m, t) for m, t in zip(masks, tensors)]
    follow_sign = ranking == "magnitude" and not signed
    masks = [StraightThrough.apply(t, m.to(t.dtype), None, follow_sign) for m, t in zip(masks, tensors)]
    return masks[0] if isinstance(scores, Tensor) else masks


def check_ratios(keep_ratio) -> list:
    """One ratio or several, as a list; several must descend strictly."""
    ratios = list(keep_ratio) if isinstance(keep_ratio, (list, tuple)) else [keep_ratio]
    for ratio in ratios:
        keep_count(ratio, 1)
    if not ratios or any(Fraction(str(a)) <= Fraction(str(b)) for a, b in zip(ratios, ratios[1:])):
        raise ValueError(f"keep ratios {ratios}: the keep ratio and those of the coats must descend strictly")
    return ratios


def with_signs(mask: Tensor, scores: Tensor) -> Tensor:
    """int8 mask, negative where the score is negative; a kept score of 0 counts as positive, so the count stays."""
    mask = mask.to(torch.int8)
    return torch.where(scores.detach() < 0, -mask, mask)


def select_largest(rows: list[Tensor], counts: list[int], magnitude: bool = True) -> list[Tensor]:
    """In each row, 1 at the ``counts[0]`` largest entries, plus 1 at the ``counts[1]`` largest, and so on.

    Args:
        rows: tensors of one shape (number of rows, n), one type and one device.
        counts: how many to keep, 0 to n each.
        magnitude: rank |entry| instead of the entry.

    Returns:
        Masks of the same shape: bool for one count, int8 for several.
    """
    if rows[0].device.type != "cpu":
        shape = rows[0].shape
        keys = torch.stack(rows).reshape(-1, shape[1])
        keys = keys.float() if keys.dtype in (torch.half, torch.bfloat16) else keys
        keys = torch.nan_to_num(keys.abs() if magnitude else keys, nan=math.inf, posinf=math.inf, neginf=-math.inf)
        mask = _sum([_select_on_device(keys, count) for count in counts])
        return list(mask.reshape(len(rows), *shape).unbind())
    masks, scratch = [], None
    for row in rows:
        row = row.detach()
        keys = (row.float() if row.dtype in (torch.half, torch.bfloat16) else row).numpy()
        scratch = np.empty_like(keys) if scratch is None else scratch
        keys = np.abs(keys, out=scratch) if magnitude else keys
        if keys.size and np.isnan(keys.max()):
            keys = np.nan_to_num(keys, nan=np.inf, posinf=np.inf, neginf=-np.inf)
        masks.append(_sum([torch.from_numpy(_select_on_cpu(keys, count)) for count in counts]))
    return masks


def _sum(masks):
    return masks[0] if len(masks) == 1 else sum(mask.to(torch.int8) for mask in masks)


def _select_on_device(keys, count):
    """(rows, n) -> bool (rows, n) with ``count`` ones per row, in tensor operations of known sizes only."""
    if count in (0, keys.shape[1]):
        return torch.full_like(keys, bool(count), dtype=torch.bool)
    threshold = torch.topk(keys, count, dim=1, sorted=False).values.amin(1, keepdim=True)
    above, tied = keys > threshold, keys == threshold
    missing = count - above.sum(1, keepdim=True)
    return above | (tied & (tied.cumsum(1, dtype=torch.int32) <= missing))


def _select_on_cpu(keys, count):
    """The same in NumPy, where a look at a value costs nothing."""
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


def _kth_largest(keys, k):
    """The k-th largest of a long vector without NaN."""
    rank = len(keys) - k
    # An odd stride, lest the sample be one column of a matrix.
    sample = np.sort(keys[:: (len(keys) // _SAMPLE) | 1])
    centre, margin = rank / len(keys) * len(sample), 2 * math.sqrt(len(sample))
    low, high = math.floor(centre - margin), math.ceil(centre + margin)
    low = sample[low] if low >= 0 else -np.inf
    high = sample[high] if high < len(sample) else np.inf
    below = np.count_nonzero(keys < low)
    inside = keys[np.flatnonzero((keys >= low) & (keys <= high))]
    if below <= rank < below + len(inside):
        keys, rank = inside, rank - below
    return np.partition(keys, rank)[rank]


class StraightThrough(torch.autograd.Function):
    """A value computed from scores by a step function f, differentiated as if f were the identity.

    value = factor * f(scores); gradient of the scores = (gradient of the value) * factor [* sign(scores)]. With ``learned``,
    the scores belong to these columns of the value only.
    """

    @staticmethod
    def forward(ctx, scores, value, factor, follow_sign, learned=None):
        ctx.save_for_backward(scores, factor, learned)
        ctx.follow_sign = follow_sign
        return value.detach()

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        scores, factor, learned = ctx.saved_tensors
        if learned is not None:
            grad, factor = grad.gather(1, learned), factor.gather(1, learned)
        slope = scores.sign() if ctx.follow_sign else torch.ones_like(scores)
        if factor is not None:
            slope.mul_(factor)
        return slope.mul_(grad), None, None, None, None

"""Slow reference for masks: a stable descending sort, and the count in exact fractions."""

import math
from fractions import Fraction

import torch


def by_sorting(keys, count):
    """True at the ``count`` largest entries of each row, (..., n). Of equal entries, lower indices come first."""
    order = torch.sort(keys, dim=-1, descending=True, stable=True).indices
    return torch.zeros(keys.shape, dtype=torch.bool).scatter_(-1, order[..., :count], True)


def number_kept(keep_ratio, n):
    """max(1, floor(keep_ratio * n + 1/2)) of a decimal such as 0.1, or a fraction."""
    return max(1, math.floor(Fraction(str(keep_ratio)) * n + Fraction(1, 2)))


def expected_mask(scores, keep_ratio, scope="tensor"):
    """Mask of the largest magnitudes in a tensor, or in each ``row``."""
    keys = scores.detach().abs().float()
    rows = keys if scope == "row" else keys.reshape(1, -1)
    return by_sorting(rows, number_kept(keep_ratio, rows.shape[1])).reshape(keys.shape)


def expected_masks_together(tensors, keep_ratio):
    """Masks of tensors that are ranked together: first a tenth of each tensor's share, then the largest scores of all."""
    sizes = [scores.numel() for scores in tensors]
    entries = [
        (-abs(float(x)), place, i) for place, s in enumerate(tensors) for i, x in enumerate(s.detach().flatten())
    ]
    count = number_kept(keep_ratio, len(entries))
    least = {
        entry
        for place, n in enumerate(sizes)
        for entry in sorted(e for e in entries if e[1] == place)[: count * n // (10 * len(entries))]
    }
    kept = least | set(sorted(set(entries) - least)[: count - len(least)])
    whole = [torch.tensor([e in kept for e in entries if e[1] == place]) for place in range(len(sizes))]
    return [mask.reshape(scores.shape) for mask, scores in zip(whole, tensors)]


def expected_entries(scores, keep_ratios, ranking="magnitude", signed=False):
    """Mask entries of one tensor: the sum of all coats, with the sign of the score if ``signed``."""
    keys = scores.detach().abs() if ranking == "magnitude" else scores.detach()
    coats = [
        by_sorting(keys.flatten(), number_kept(ratio, keys.numel())).reshape(keys.shape).float()
        for ratio in keep_ratios
    ]
    return sum(coats) * torch.where(scores.detach() < 0, -1.0, 1.0) if signed else sum(coats)


def flip(scores):
    """Reverse the ranking of scores without changing their signs: the largest magnitudes become the smallest."""
    with torch.no_grad():
        scores.copy_(scores.sign() * (scores.abs().max() + 1 - scores.abs()))

"""The part of a mask that is fixed at random from the start and never learned."""

import math
from collections.abc import Sequence
from fractions import Fraction

import torch
from torch import Tensor

from ..random_tensors import philox
from .selection import MaskChoices, keep_count, select_largest


def pinned_per_row(columns: int, choices: MaskChoices) -> int:
    """The number of entries of each row that are pinned: ``floor(pin * columns + 1/2)``, or all if the mask is random."""
    return columns if choices.random else math.floor(Fraction(str(choices.pin)) * columns + Fraction(1, 2))


def draw_pinned(shape: Sequence[int], choices: MaskChoices, seed: int, name: str) -> tuple[Tensor, Tensor, list[int]]:
    """Draws which entries of each row are pinned, and a mask on them that keeps the keep ratio of them.

    Args:
        shape: (rows, columns) of the mask.
        choices: of the mask; at least one entry of each row is pinned.
        seed, name: what the draw depends on, and on nothing else.

    Returns:
        The mask, 0 where nothing is pinned (bool, or int8 if signed or of several coats); the columns that are left to
        learn, int64 (rows, columns - pinned); and how many entries each coat keeps among the pinned, in each row if the
        scope is the row, else in all.
    """
    rows, columns = shape
    per_row = pinned_per_row(columns, choices)
    is_pinned = select_largest([philox.uniform(seed, f"{name}.pin", shape, 1.0)], [per_row], magnitude=False)[0]
    by_row = choices.scope == "row"
    size, pinned = (columns, per_row) if by_row else (rows * columns, rows * per_row)
    if pinned == size:
        counts = [keep_count(ratio, size) for ratio in choices.keep_ratios]
    else:
        counts = [math.floor(Fraction(str(ratio)) * pinned + Fraction(1, 2)) for ratio in choices.keep_ratios]
    drawn = philox.uniform(seed, f"{name}.pinned_mask", shape, 1.0).masked_fill(~is_pinned, -math.inf)
    mask = select_largest([drawn if by_row else drawn.reshape(1, -1)], counts, magnitude=False)[0].reshape(shape)
    if choices.kind == "signed":
        mask = mask.to(torch.int8) * philox.sign(seed, f"{name}.pinned_sign", shape).to(torch.int8)
    # A stable sort puts what is not pinned first, in order; unlike nonzero it has a known shape, also without values.
    learned = is_pinned.to(torch.int8).argsort(dim=1, stable=True)[:, : columns - per_row].contiguous()
    return mask, learned, counts

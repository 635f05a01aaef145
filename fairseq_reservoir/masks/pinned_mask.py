"""Pinned mask entries: entries that are drawn at random and never learned."""

import math
from collections.abc import Sequence
from fractions import Fraction

import torch
from torch import Tensor

from ..plan.mask_choices import MaskChoices, keep_count
from ..random_tensors import philox
from ..random_tensors.tensors import drawn
from .selection import select_largest


def pinned_per_row(columns: int, choices: MaskChoices) -> int:
    """Return the number of pinned entries per row: ``floor(pin * columns + 1/2)``, or ``columns`` for a random mask."""
    return columns if choices.random else math.floor(Fraction(str(choices.pin)) * columns + Fraction(1, 2))


def draw_pinned(shape: Sequence[int], choices: MaskChoices, seed: int, name: str) -> tuple[Tensor, Tensor, list[int]]:
    """Draw the pinned positions of each row, and the mask at these positions. The mask keeps the share ``keep_ratio`` of these entries.

    Args:
        shape: (rows, columns) of the mask.
        choices: settings of the mask, with at least one pinned entry per row.
        seed, name: all random values depend only on these.

    Returns:
        mask: (rows, columns), 0 at entries that are not pinned; bool, or int8 if it is signed or has several keep ratios.
        learned: (rows, columns - pinned), int64, the column indices of the entries that are not pinned.
        counts: the number of kept pinned entries for each keep ratio. It is counted per row with scope "row", else per tensor.
    """
    rows, columns = shape
    per_row = pinned_per_row(columns, choices)
    is_pinned = select_largest([drawn(philox.uniform, seed, f"{name}.pin", shape, 1.0)], [per_row], magnitude=False)[0]
    by_row = choices.scope == "row"
    size, pinned = (columns, per_row) if by_row else (rows * columns, rows * per_row)
    if pinned == size:
        counts = [keep_count(ratio, size) for ratio in choices.keep_ratios]
    else:
        counts = [math.floor(Fraction(str(ratio)) * pinned + Fraction(1, 2)) for ratio in choices.keep_ratios]
    values = drawn(philox.uniform, seed, f"{name}.pinned_mask", shape, 1.0).masked_fill(~is_pinned, -math.inf)
    mask = select_largest([values if by_row else values.reshape(1, -1)], counts, magnitude=False)[0].reshape(shape)
    if choices.kind == "signed":
        mask = mask.to(torch.int8) * drawn(philox.sign, seed, f"{name}.pinned_sign", shape).to(torch.int8)
    # A stable sort moves the entries that are not pinned to the front, in order. Unlike nonzero, it works on the meta device.
    learned = is_pinned.to(torch.int8).argsort(dim=1, stable=True)[:, : columns - per_row].contiguous()
    return mask, learned, counts

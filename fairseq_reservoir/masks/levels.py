"""Weights rounded to a few equidistant levels: the levels, their distance, and which level a weight gets."""

from dataclasses import dataclass

import torch
from torch import Tensor

SIGN, TERNARY = "sign", "ternary"
MOST_LEVELS = 16
# The distance of k equidistant levels around 0 that rounds a standard normal variable with the least mean squared error.
NORMAL_STEPS = {
    3: 1.2240, 4: 0.9957, 5: 0.8430, 6: 0.7334, 7: 0.6508, 8: 0.5860, 9: 0.5338, 10: 0.4908,
    11: 0.4546, 12: 0.4238, 13: 0.3972, 14: 0.3739, 15: 0.3534, 16: 0.3352,
}  # fmt: skip
KINDS = (SIGN, TERNARY, *map(str, NORMAL_STEPS))
# What rounded weights call their scales, in place of the latent weights that they were made of.
SCALES = "scales"
# BitNet's, which keeps a matrix of zeros from dividing by 0.
_SMALLEST_MEAN = 1e-5


def name_of_scales(latent: str) -> str:
    """The name of the scales that belong to latent weights: ``fc1.latent`` -> ``fc1.scales``."""
    return latent.removesuffix("latent") + SCALES


@dataclass(frozen=True)
class Levels:
    """k levels, whole numbers around 0 if k is odd (-1, 0, 1), halves if it is even (-1/2, 1/2), times a scale.

    The scale is the distance of neighbouring levels. A weight w gets the level nearest to w / scale; midway, of k = 2 and
    other even numbers the upper one, of odd ones that which is even.

    - ``sign``: k = 2, for each row 2 mean(|w|), so that a row is plus or minus its mean magnitude, the scale with the least
      squared error (Rastegari et al., 2016, "XNOR-Net").
    - ``ternary``: k = 3, for the whole matrix mean(|w|) (Ma et al., 2024, "The Era of 1-bit LLMs: All Large Language Models
      are in 1.58 Bits", BitNet b1.58).
    - ``3`` to ``16``: as many levels, for each row ``NORMAL_STEPS`` times sqrt(mean(w^2)), the best for normally distributed
      weights (Max, 1960, "Quantizing for minimum distortion", table II).

    Attributes:
        kind: one of these words, or a number.

    Raises:
        ValueError: it is none of them.
    """

    kind: str

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(
                f"kind {self.kind}: must be {SIGN}, {TERNARY}, or a number of levels from 3 to {MOST_LEVELS}"
            )

    def __str__(self) -> str:
        return self.kind if self.kind in (SIGN, TERNARY) else f"{self.kind} levels"

    @property
    def count(self) -> int:
        return {SIGN: 2, TERNARY: 3}.get(self.kind) or int(self.kind)

    @property
    def bits(self) -> int:
        """Bits that hold the number of a level."""
        return (self.count - 1).bit_length()

    def scales_in(self, rows: int) -> int:
        """How many scales a matrix of so many rows has."""
        return 1 if self.kind == TERNARY else rows

    def scales(self, weight: Tensor) -> Tensor:
        """The scales of a matrix (rows, columns): (rows, 1), or (1, 1) if there is one."""
        if self.kind == TERNARY:
            return weight.abs().mean().clamp(min=_SMALLEST_MEAN).reshape(1, 1)
        if self.kind == SIGN:
            return 2 * weight.abs().mean(1, keepdim=True)
        return NORMAL_STEPS[self.count] * weight.square().mean(1, keepdim=True).sqrt()

    def of(self, weight: Tensor, scales: Tensor) -> Tensor:
        """The levels of a matrix, as its type of floating point; their product with ``scales`` is the rounded matrix."""
        ratio = weight / scales.clamp(min=torch.finfo(weight.dtype).tiny)  # a row of zeros has a scale of 0
        nearest = ratio.round() if self.count % 2 else ratio.floor() + 0.5
        return nearest.clamp(-self.highest, self.highest)

    @property
    def highest(self) -> float:
        """The highest level, of which the lowest is the negative."""
        return (self.count - 1) / 2

    def numbers(self, levels: Tensor) -> Tensor:
        """Levels by their number from the lowest, 0, as int8."""
        return (levels + self.highest).to(torch.int8)

    def from_numbers(self, numbers: Tensor) -> Tensor:
        """float32 levels by their numbers."""
        return numbers.float() - self.highest

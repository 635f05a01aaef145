"""Levels to which trained weights are rounded, and the scales of the levels."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from torch import Tensor

SIGN, TERNARY = "sign", "ternary"
MOST_LEVELS = 16
# k -> the distance between k equidistant levels around 0 with the least mean squared rounding error for a standard normal variable.
NORMAL_STEPS = {
    3: 1.2240, 4: 0.9957, 5: 0.8430, 6: 0.7334, 7: 0.6508, 8: 0.5860, 9: 0.5338, 10: 0.4908,
    11: 0.4546, 12: 0.4238, 13: 0.3972, 14: 0.3739, 15: 0.3534, 16: 0.3352,
}  # fmt: skip
KINDS = (SIGN, TERNARY, *map(str, NORMAL_STEPS))
# The buffer of the scales in the state dict of an export. An export has levels instead of the trained weights.
SCALES = "scales"
# BitNet's lower bound of mean(|w|). It prevents a division by 0 for a matrix of zeros.
_SMALLEST_MEAN = 1e-5


def name_of_scales(latent: str) -> str:
    """Return the name of the scales that belong to the trained weights ``latent``: ``fc1.latent`` -> ``fc1.scales``."""
    return latent.removesuffix("latent") + SCALES


@dataclass(frozen=True)
class Levels:
    """Set of k levels around 0, and the rule for the scale of a matrix.

    The levels are integers if k is odd (-1, 0, 1) and half-integers if k is even (-1/2, 1/2). A weight w becomes
    scale * level, where level is the one nearest to w / scale. Neighbouring rounded values therefore differ by the scale. If w / scale
    lies midway between two levels, the upper one is taken if k is even, and the one that is an even integer if k is odd.

    - ``sign``: k = 2. Each row has the scale 2 mean(|w|), so its rounded values are +-mean(|w|). Among all pairs +-a, this pair has the
      smallest squared error (Rastegari et al., 2016, "XNOR-Net").
    - ``ternary``: k = 3. The matrix has a single scale, mean(|w|) (Ma et al., 2024, "The Era of 1-bit LLMs: All Large Language
      Models are in 1.58 Bits", BitNet b1.58).
    - ``3`` to ``16``: k is this number. Each row has the scale ``NORMAL_STEPS[k]`` sqrt(mean(w^2)), which is optimal for
      normally distributed weights (Max, 1960, "Quantizing for minimum distortion", table II).

    Attributes:
        kind: ``sign``, ``ternary``, or a number from 3 to 16 as a string. Other values raise a ValueError.
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
        """Number of bits for one level."""
        return (self.count - 1).bit_length()

    def scales_in(self, rows: int) -> int:
        """Return the number of scale factors of a matrix with ``rows`` rows."""
        return 1 if self.kind == TERNARY else rows

    def scales(self, weight: "Tensor") -> "Tensor":
        """Compute the scales of a matrix (rows, columns). The scales have the shape (rows, 1), or (1, 1) for ``ternary``."""
        if self.kind == TERNARY:
            return weight.abs().mean().clamp(min=_SMALLEST_MEAN).reshape(1, 1)
        if self.kind == SIGN:
            return 2 * weight.abs().mean(1, keepdim=True)
        return NORMAL_STEPS[self.count] * weight.square().mean(1, keepdim=True).sqrt()

    def nearest(self, weight: "Tensor", scales: "Tensor") -> "Tensor":
        """Find the nearest level of each weight, in the dtype of ``weight``. The rounded weight is level times scale."""
        import torch

        ratio = weight / scales.clamp(min=torch.finfo(weight.dtype).tiny)  # a row of zeros has a scale of 0
        nearest = ratio.round() if self.count % 2 else ratio.floor() + 0.5
        return nearest.clamp(-self.highest, self.highest)

    @property
    def highest(self) -> float:
        """The highest level; the lowest level is its negative."""
        return (self.count - 1) / 2

    def numbers(self, levels: "Tensor") -> "Tensor":
        """Convert levels to int8 numbers from 0 (the lowest level) to k - 1."""
        import torch

        return (levels + self.highest).to(torch.int8)

    def from_numbers(self, numbers: np.ndarray[Any, np.dtype[np.int8]]) -> np.ndarray[Any, np.dtype[np.float32]]:
        """Invert ``numbers`` for a NumPy array. The levels are float32."""
        return numbers.astype(np.float32) - np.float32(self.highest)

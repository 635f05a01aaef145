"""Recipes: short descriptions from which random tensors can be drawn again. An export stores recipes instead of random tensors."""

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np

from . import initialisers
from .philox import Floats

if TYPE_CHECKING:
    import torch

_VECTORS: dict[str, Callable[..., Floats]] = {
    "ones": lambda seed, name, shape: np.ones(shape, dtype=np.float32),
    "bias_uniform": initialisers.bias_uniform,
}
INITIALISERS = {**initialisers.MATRIX_INITIALISERS, **_VECTORS, "embedding_normal": initialisers.embedding_normal}
OF_ANY_SHAPE = {*_VECTORS, "zero"}  # initialisers that accept any shape, even the shape of a scalar
_EXACT = initialisers.EXACT | _VECTORS.keys()


@dataclass(frozen=True)
class Recipe:
    """Description of the random values of one tensor. ``draw`` computes the values from a seed.

    Args:
        initialiser: key of ``INITIALISERS``.
        name: the values depend only on this name and the seed.
        shape: shape of the tensor. A tensor of more than two dimensions is drawn as a matrix with ``shape[0]`` rows.
        blocks: number of equal blocks of rows. Two or more blocks are drawn separately, as ``name/0``, ``name/1``, ...
        fan_in: fan-in of the layer; only ``bias_uniform`` needs it.
        scale: the drawn values are multiplied by this factor, in float32.
        zero_row: index of a row to set to 0 after drawing, such as the padding row of an embedding.
    """

    initialiser: str
    name: str
    shape: tuple[int, ...]
    blocks: int = 1
    fan_in: int | None = None
    scale: float = 1.0
    zero_row: int | None = None

    @property
    def exact(self) -> bool:
        """Whether every machine draws the same bits. If false, values differ between machines by about 1e-6 (see ``philox``)."""
        return self.initialiser in _EXACT

    def draw(self, seed: int) -> "torch.Tensor":
        """Draw the tensor (float32) for a seed. Inside ``torch.device("meta")``, the tensor has no values."""
        from .tensors import drawn

        return drawn(lambda seed, *_: self.draw_array(seed), seed, self.name, self.shape)

    def draw_array(self, seed: int) -> Floats:
        """Draw the values as a NumPy array. Only ``orthogonal`` needs torch."""
        options = {} if self.fan_in is None else {"fan_in": self.fan_in}
        make = INITIALISERS[self.initialiser]
        shape = self.shape if len(self.shape) < 3 else (self.shape[0], math.prod(self.shape[1:]))
        if self.blocks == 1:
            value = make(seed, self.name, shape, **options)
        else:
            block = (shape[0] // self.blocks, *shape[1:])
            value = np.concatenate([make(seed, f"{self.name}/{i}", block, **options) for i in range(self.blocks)])
        if self.scale != 1:
            value *= np.float32(self.scale)
        if self.zero_row is not None:
            value[self.zero_row] = 0
        return value.reshape(self.shape)

    def as_json(self) -> dict[str, Any]:
        """Return the fields with values other than their defaults."""
        defaults = {field.name: field.default for field in fields(self)}
        return {key: value for key, value in asdict(self).items() if value != defaults[key]}

    @classmethod
    def from_json(cls, stored: dict[str, Any]) -> "Recipe":
        return cls(**{**stored, "shape": tuple(stored["shape"])})

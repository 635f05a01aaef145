"""Masked weights for inference that are built when they are used and dropped afterwards: in between, W is not there.

What it costs is drawing W, unpacking the mask and multiplying. For ``signed_constant`` a bit per weight is all there is to
draw, a quarter of the work, so the signs are drawn at every use and nothing of W is held; holding them as bits would save
that quarter for one bit per random weight. Other weights take ten (uniform) to two hundred times (normal) as long to draw.
Their stack applies one random layer at every depth, so the matrices of one layer at a time are kept: a stack draws once per
batch, and holds one float layer in place of one per depth. Where each layer has weights of its own (``--mask-share none``)
they are drawn at every use.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..random_tensors import philox
from ..random_tensors.initialisers import constant_size
from ..random_tensors.recipe import Recipe
from . import bits
from .masked_embedding import MaskedEmbedding
from .masked_linear import MaskedLinear, all_rows
from .masked_weight import MaskedWeight, times_rows

# Types in which the weights may have been trained: drawn values are rounded to them.
_ROUNDINGS = (torch.float32, torch.float16, torch.bfloat16)


class OneLayer:
    """Drawn matrices of one layer on one device: they are dropped when one of another layer or on another device is asked for."""

    def __init__(self) -> None:
        self.layer: str | None = None
        self.device: torch.device | None = None
        self.matrices: dict[str, Tensor] = {}

    def get(self, layer: str, device: torch.device, name: str, draw: Callable[[], Tensor]) -> Tensor:
        if (layer, device) != (self.layer, self.device):
            self.layer, self.device, self.matrices = layer, device, {}
        if name not in self.matrices:
            self.matrices[name] = draw()
        return self.matrices[name]


class _Signs:
    """W of ``signed_constant``: its size and, at every use, its signs."""

    def __init__(self, recipe: Recipe, seed: int, rounding: torch.dtype, dtype: torch.dtype) -> None:
        self.recipe, self.seed, self.dtype = recipe, seed, dtype
        size = constant_size(recipe.shape) * torch.tensor(recipe.scale, dtype=torch.float32)
        self.size = size.to(rounding).to(dtype).item()

    def times(self, mask: Tensor, rows: Tensor | None = None) -> Tensor:
        """W * mask, or these rows of it; mask int8."""
        drawn = philox.sign_bits(self.seed, self.recipe.name, math.prod(self.recipe.shape))
        packed = torch.from_numpy(drawn).to(mask.device)
        if rows is not None:
            packed = packed[: math.prod(self.recipe.shape) // 8].reshape(self.recipe.shape[0], -1)[rows]
        signs = bits.unpack(packed, mask.shape, 1)
        return signs.mul_(2).sub_(1).mul_(mask).to(self.dtype).mul_(self.size)


class _Matrix:
    """Any other W, drawn when its layer runs and kept until another layer does."""

    def __init__(self, recipe: Recipe, seed: int, rounding: torch.dtype, dtype: torch.dtype, kept: OneLayer) -> None:
        self.recipe, self.seed, self.rounding, self.dtype, self.kept = recipe, seed, rounding, dtype, kept
        parts = recipe.name.split(".")
        self.layer = ".".join(parts[: 3 if parts[1] == "layers" else 2])

    def times(self, mask: Tensor) -> Tensor:
        """W * mask; mask int8."""
        weight = self.kept.get(self.layer, mask.device, self.recipe.name, lambda: self._draw(mask.device))
        return mask.to(self.dtype).mul_(weight)

    def _draw(self, device: torch.device) -> Tensor:
        return self.recipe.draw(self.seed).to(self.rounding).to(device, self.dtype)


class _Regenerated(nn.Module):
    """Holds the mask of a masked module as bits; ``weight`` builds g (W * M), (rows, columns), in the type of ``like``."""

    packed: Tensor
    like: Tensor
    row_gain: Tensor | None

    def __init__(self, masked: MaskedWeight, mask: Tensor, weights: Any) -> None:
        super().__init__()
        self.choices, self.shape, self.weights = masked.choices, masked.weight_shape, weights
        packed = bits.pack(mask, self.choices.bits, self.choices.lowest).to(masked.device)
        self.register_buffer("packed", packed, persistent=False)
        self.register_buffer("like", masked.frozen_weight.new_empty(0), persistent=False)
        self.register_buffer(
            "row_gain", None if masked.row_gain is None else masked.row_gain.detach(), persistent=False
        )
        self.train(masked.training)

    @property
    def weight(self) -> Tensor:
        weight: Tensor = self.weights.times(self._mask(self.packed, self.shape)).to(self.like.dtype)
        return times_rows(weight, self.row_gain)

    def _mask(self, packed: Tensor, shape: Sequence[int]) -> Tensor:
        return bits.unpack(packed, shape, self.choices.bits, self.choices.lowest)

    def extra_repr(self) -> str:
        return f"{tuple(self.shape)}, {self.choices}"


class RegeneratedLinear(_Regenerated):
    """y = x (W * M)^T, as ``MaskedLinear``; x: (..., columns), y: (..., rows). ``bias`` is 0."""

    bias: Tensor

    def __init__(self, masked: MaskedLinear, weights: Any) -> None:
        super().__init__(masked, masked.mask, weights)
        self.register_buffer("bias", masked.bias, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        return all_rows(x, self.weight, self.bias)


class RegeneratedEmbedding(_Regenerated):
    """Rows of W * M, as ``MaskedEmbedding``; only those asked for are built if a row of the mask is whole bytes."""

    def __init__(self, masked: MaskedEmbedding, weights: Any) -> None:
        mask = masked.mask.clone()
        if masked.padding_idx is not None:
            mask[masked.padding_idx] = 0
        super().__init__(masked, mask, weights)
        self.embedding_dim, self.padding_idx = masked.embedding_dim, masked.padding_idx

    def forward(self, tokens: Tensor) -> Tensor:
        words, columns = self.shape
        if columns % 8:
            return F.embedding(tokens, self.weight, self.padding_idx)
        rows = tokens.reshape(-1)
        packed = self.packed.reshape(self.choices.bits, words, -1)[:, rows]
        mask = self._mask(packed.reshape(-1), (len(rows), columns))
        found: Tensor = self.weights.times(mask, rows).to(self.like.dtype)
        found = times_rows(found, None if self.row_gain is None else self.row_gain[rows])
        return found.reshape(*tokens.shape, columns)


@torch.no_grad()
def regenerated(masked: MaskedWeight, recipe: Recipe | None, seed: int, kept: OneLayer) -> nn.Module | None:
    """The module that replaces a masked one at inference, with the same outputs.

    Args:
        masked: in evaluation mode.
        recipe, seed: how its W was drawn.
        kept: shared by all modules of a model.

    Returns:
        None if W has to be held: it is not what recipe and seed give, as word vectors read from a file are not; or it is a
        table of words that is not of signs, which would be drawn whole to look up a few rows.
    """
    if recipe is None:
        return None
    signs = recipe.initialiser == "signed_constant"
    if not signs and (isinstance(masked, MaskedEmbedding) or recipe.name.endswith("output_projection")):
        return None
    make: Any = RegeneratedEmbedding if isinstance(masked, MaskedEmbedding) else RegeneratedLinear
    dtype = masked.frozen_weight.dtype
    for rounding in _ROUNDINGS:
        weights: Any = _Signs(recipe, seed, rounding, dtype) if signs else _Matrix(recipe, seed, rounding, dtype, kept)
        module: _Regenerated = make(masked, weights)
        if module.weight.equal(masked.weight):
            return module
        kept.matrices.clear()
    return None

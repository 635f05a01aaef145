"""Memory-saving inference: regenerate W from its seed at each use instead of storing it.

Each use draws W, unpacks the mask M and computes W * M. The initialiser ``signed_constant`` needs one random bit per weight.
Drawing these signs is only a quarter of the work, so they are drawn at every use.

Other initialisers take 10 (uniform) to 200 times (normal) as long. For these, the matrices of the current layer are cached.
Usually a stack applies one random layer at every depth. This layer is then drawn once per batch, and is the only layer in
memory. With ``--mask-share none``, every layer has its own W, which is drawn at every use.
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

# Dtypes in which the model may have been trained. Drawn values are rounded to that dtype.
_ROUNDINGS = (torch.float32, torch.float16, torch.bfloat16)


class LayerCache:
    """Cache of the drawn matrices of one layer on one device. A request for a different layer or device empties the cache."""

    def __init__(self) -> None:
        self.layer: str | None = None
        self.device: torch.device | None = None
        self.matrices: dict[str, Tensor] = {}

    def get(self, layer: str, device: torch.device, name: str, draw: Callable[[], Tensor]) -> Tensor:
        """Return the matrix ``name`` of a layer. If it is not cached, call ``draw``."""
        if (layer, device) != (self.layer, self.device):
            self.layer, self.device, self.matrices = layer, device, {}
        if name not in self.matrices:
            self.matrices[name] = draw()
        return self.matrices[name]


class _Signs:
    """Random matrix W of the initialiser ``signed_constant``. Its magnitude is stored, and its signs are drawn at every use."""

    def __init__(self, recipe: Recipe, seed: int, rounding: torch.dtype, dtype: torch.dtype) -> None:
        self.recipe, self.seed, self.dtype = recipe, seed, dtype
        size = torch.tensor(float(constant_size(recipe.shape)), dtype=torch.float32)
        self.size = (size * torch.tensor(recipe.scale, dtype=torch.float32)).to(rounding).to(dtype).item()

    def times(self, mask: Tensor, rows: Tensor | None = None) -> Tensor:
        """Compute W * mask; mask: int8. ``rows``: index of the row of W for each row of the mask; None for all rows."""
        drawn = philox.sign_bits(self.seed, self.recipe.name, math.prod(self.recipe.shape))
        packed = torch.from_numpy(drawn).to(mask.device)
        if rows is not None:
            packed = packed[: math.prod(self.recipe.shape) // 8].reshape(self.recipe.shape[0], -1)[rows]
        signs = bits.unpack(packed, mask.shape, 1)
        return signs.mul_(2).sub_(1).mul_(mask).to(self.dtype).mul_(self.size)


class _Matrix:
    """Random matrix W of an initialiser other than ``signed_constant``.

    W is drawn when its layer runs, and cached until a different layer runs.
    """

    def __init__(self, recipe: Recipe, seed: int, rounding: torch.dtype, dtype: torch.dtype, cache: LayerCache) -> None:
        self.recipe, self.seed, self.rounding, self.dtype, self.cache = recipe, seed, rounding, dtype, cache
        parts = recipe.name.split(".")
        self.layer = ".".join(parts[: 3 if parts[1] == "layers" else 2])

    def times(self, mask: Tensor) -> Tensor:
        """Compute W * mask; mask: int8."""
        weight = self.cache.get(self.layer, mask.device, self.recipe.name, lambda: self._draw(mask.device))
        return mask.to(self.dtype).mul_(weight)

    def _draw(self, device: torch.device) -> Tensor:
        return self.recipe.draw(self.seed).to(self.rounding).to(device, self.dtype)


class _Regenerated(nn.Module):
    """Module with a bit-packed mask. ``weight`` is g (W * M), (rows, columns), in the dtype of the empty buffer ``like``."""

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
    """Replacement for a ``MaskedLinear``: y = x (g (W * M))^T; x: (..., columns), y: (..., rows). ``bias`` is 0."""

    bias: Tensor

    def __init__(self, masked: MaskedLinear, weights: Any) -> None:
        super().__init__(masked, masked.mask, weights)
        self.register_buffer("bias", masked.bias, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        return all_rows(x, self.weight, self.bias)


class RegeneratedEmbedding(_Regenerated):
    """Replacement for a ``MaskedEmbedding``. If embedding_dim is a multiple of 8, only the vectors of the input tokens are computed."""

    def __init__(self, masked: MaskedEmbedding, weights: Any) -> None:
        mask = masked.mask.clone()
        if masked.padding_idx is not None:
            mask[masked.padding_idx] = 0
        super().__init__(masked, mask, weights)
        self.embedding_dim, self.padding_idx = masked.embedding_dim, masked.padding_idx

    def forward(self, tokens: Tensor) -> Tensor:
        entries, columns = self.shape
        if columns % 8:
            return F.embedding(tokens, self.weight, self.padding_idx)
        rows = tokens.reshape(-1)
        packed = self.packed.reshape(self.choices.bits, entries, -1)[:, rows]
        mask = self._mask(packed.reshape(-1), (len(rows), columns))
        vectors: Tensor = self.weights.times(mask, rows).to(self.like.dtype)
        vectors = times_rows(vectors, None if self.row_gain is None else self.row_gain[rows])
        return vectors.reshape(*tokens.shape, columns)


@torch.no_grad()
def regenerated(masked: MaskedWeight, recipe: Recipe | None, seed: int, cache: LayerCache) -> nn.Module | None:
    """Create a replacement for a masked module at inference, with the same outputs. Return None if W must be stored.

    W must be stored if recipe and seed do not reproduce it, for example for pretrained embeddings. Embeddings and output
    projections with an initialiser other than ``signed_constant`` are stored too, because looking up a few rows would draw the
    whole table.

    Args:
        masked: the masked module, in evaluation mode.
        recipe, seed: recipe and seed of the module's W.
        cache: the cache of all modules of the model.
    """
    if recipe is None:
        return None
    signs = recipe.initialiser == "signed_constant"
    if not signs and (isinstance(masked, MaskedEmbedding) or recipe.name.endswith("output_projection")):
        return None
    make: Any = RegeneratedEmbedding if isinstance(masked, MaskedEmbedding) else RegeneratedLinear
    dtype = masked.frozen_weight.dtype
    for rounding in _ROUNDINGS:
        weights: Any = _Signs(recipe, seed, rounding, dtype) if signs else _Matrix(recipe, seed, rounding, dtype, cache)
        module: _Regenerated = make(masked, weights)
        if module.weight.equal(masked.weight):
            return module
        cache.matrices.clear()
    return None

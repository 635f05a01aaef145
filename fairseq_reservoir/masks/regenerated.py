"""Memory-saving inference: regenerate W from its seed at each use instead of storing it.

Each use unpacks the mask M and computes W * M. The initialiser ``signed_constant`` needs one random bit per weight. Drawing these
signs takes only a quarter of the time of a use, so they are drawn at every use.

Drawing W with another initialiser takes 10 (uniform) to 200 times (normal) as long as drawing signs. With these initialisers, W is drawn
when the layer runs, like every other random tensor (``random_tensors.drawn_in_forward``). Usually all depths of a stack share one random
layer. The layer is then drawn once per batch.
"""

import math
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..random_tensors import philox
from ..random_tensors.drawn_in_forward import ROUNDINGS, DrawnTensor, drawn_tensor
from ..random_tensors.initialisers import constant_size
from ..random_tensors.recipe import Recipe
from . import bits
from .masked_embedding import MaskedEmbedding
from .masked_linear import MaskedLinear, all_rows
from .masked_weight import MaskedWeight, times_rows


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


class _Regenerated(nn.Module):
    """Module with a bit-packed mask. ``weight`` is g (W * M), (rows, columns), in the dtype of the empty buffer ``like``.

    W is drawn by ``signs``. If ``signs`` is None, W is the buffer ``random``, which ``drawn`` fills while the layer runs.
    """

    packed: Tensor
    like: Tensor
    random: Tensor
    row_gain: Tensor | None
    drawn: DrawnTensor | None = None

    def __init__(self, masked: MaskedWeight, mask: Tensor, signs: _Signs | None) -> None:
        super().__init__()
        self.choices, self.shape, self.signs = masked.choices, masked.weight_shape, signs
        packed = bits.pack(mask, self.choices.bits, self.choices.lowest).to(masked.device)
        self.register_buffer("packed", packed, persistent=False)
        self.register_buffer("like", masked.frozen_weight.new_empty(0), persistent=False)
        self.register_buffer("random", masked.frozen_weight.new_empty(0), persistent=False)
        self.register_buffer(
            "row_gain", None if masked.row_gain is None else masked.row_gain.detach(), persistent=False
        )
        self.train(masked.training)

    @property
    def weight(self) -> Tensor:
        weight = self._times(self._mask(self.packed, self.shape)).to(self.like.dtype)
        return times_rows(weight, self.row_gain)

    def _times(self, mask: Tensor, rows: Tensor | None = None) -> Tensor:
        """Compute W * mask; mask: int8. ``rows``: see ``_Signs.times``."""
        if self.signs:
            return self.signs.times(mask, rows)
        random = self.drawn.draw() if self.drawn and not self.drawn.is_there() else self.random
        return mask.to(random.dtype).mul_(random)

    def _mask(self, packed: Tensor, shape: Sequence[int]) -> Tensor:
        return bits.unpack(packed, shape, self.choices.bits, self.choices.lowest)

    def extra_repr(self) -> str:
        return f"{tuple(self.shape)}, {self.choices}"


class RegeneratedLinear(_Regenerated):
    """Replacement for a ``MaskedLinear``: y = x (g (W * M))^T; x: (..., columns), y: (..., rows). ``bias`` is 0."""

    bias: Tensor

    def __init__(self, masked: MaskedLinear, signs: _Signs | None) -> None:
        super().__init__(masked, masked.mask, signs)
        self.register_buffer("bias", masked.bias, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        return all_rows(x, self.weight, self.bias)


class RegeneratedEmbedding(_Regenerated):
    """Replacement for a ``MaskedEmbedding``. If embedding_dim is a multiple of 8, only the vectors of the input tokens are computed."""

    def __init__(self, masked: MaskedEmbedding, signs: _Signs) -> None:
        mask = masked.mask.clone()
        if masked.padding_idx is not None:
            mask[masked.padding_idx] = 0
        super().__init__(masked, mask, signs)
        self.embedding_dim, self.padding_idx = masked.embedding_dim, masked.padding_idx

    def forward(self, tokens: Tensor) -> Tensor:
        entries, columns = self.shape
        if columns % 8:
            return F.embedding(tokens, self.weight, self.padding_idx)
        rows = tokens.reshape(-1)
        packed = self.packed.reshape(self.choices.bits, entries, -1)[:, rows]
        mask = self._mask(packed.reshape(-1), (len(rows), columns))
        vectors = self._times(mask, rows).to(self.like.dtype)
        vectors = times_rows(vectors, None if self.row_gain is None else self.row_gain[rows])
        return vectors.reshape(*tokens.shape, columns)


@torch.no_grad()
def regenerated(masked: Any, recipe: Recipe | None, seed: int) -> nn.Module | None:
    """Create a replacement for a masked module at inference, with the same outputs. Return None if W must be stored.

    W must be stored if recipe and seed do not reproduce it, for example for pretrained embeddings. W is also stored for
    embeddings and output projections with an initialiser other than ``signed_constant``, because looking up a few rows would draw
    the whole table.

    Args:
        masked: the masked module, in evaluation mode.
        recipe, seed: recipe and seed of the module's W.
    """
    if recipe is None:
        return None
    if recipe.initialiser != "signed_constant":
        return None if isinstance(masked, MaskedEmbedding) else _drawn_in_forward(masked, recipe, seed)
    make: Any = RegeneratedEmbedding if isinstance(masked, MaskedEmbedding) else RegeneratedLinear
    for rounding in ROUNDINGS:
        module: _Regenerated = make(masked, _Signs(recipe, seed, rounding, masked.frozen_weight.dtype))
        if module.weight.equal(masked.weight):
            return module
    return None


def _drawn_in_forward(masked: MaskedLinear, recipe: Recipe, seed: int) -> RegeneratedLinear | None:
    if recipe.name.endswith("output_projection"):
        return None
    module = RegeneratedLinear(masked, None)
    module.drawn = drawn_tensor(module, "random", recipe, seed, masked.frozen_weight, keeps_dtype=True)
    return module if module.drawn else None

"""The weights of an exported Transformer as NumPy arrays. Masks are multiplied into the weights, and rounded weights are scaled."""

import re

import numpy as np

from ...errors import InputError
from ...masks.levels import name_of_scales
from ...plan.freeze_spec import SHARED_LAYER
from ..stored import Array


class CannotConvert(InputError):
    """Error for an export whose model CTranslate2 cannot represent."""


# Tensors that a Transformer does not need for translation.
_BOOKKEEPING = re.compile(r"(.*\.)?(num_updates|version|_float_tensor|reservoir_version)")


class Weights:
    """The arrays of an export (``reader.arrays``) under the names of fairseq's ``transformer``. Records which arrays are used."""

    def __init__(self, path: str, arrays: dict[str, Array]) -> None:
        self.path, self.arrays = path, arrays
        self._used: set[str] = set()

    def find(self, name: str) -> Array | None:
        """Return an array, or None if the export has none with this name."""
        if name in self.arrays:
            self._used.add(name)
        return self.arrays.get(name)

    def matrix(self, place: str) -> Array:
        """Return the matrix of a module.

        This is the stored weight, the product W * M of a random matrix W and a mask M, or the product of a rounded weight's levels and
        scales. If all layers of a stack share one layer, masked and rounded matrices may come from the shared layer.

        Raises:
            CannotConvert: the export has no matrix of this name.
        """
        found = self.find(f"{place}.weight")
        if found is None:
            found = self._masked(place)
        if found is None:
            found = self._rounded(place)
        if found is None:
            raise CannotConvert(
                f"{self.path}: has no matrix {place}, so CTranslate2's Transformer cannot represent the model"
            )
        return found

    def _masked(self, place: str) -> Array | None:
        mask = self.find(f"{place}.scores")
        if mask is None:
            return None
        weight = self.find(f"{place}.frozen_weight")
        if weight is None:
            stack, part = _stack_and_part(place)
            weight = self.find(f"{stack}.random_layer.{part.replace('.', '_')}")
        if weight is None or weight.shape != mask.shape:
            raise CannotConvert(f"{self.path}: {place} has pinned mask entries, which the export does not store")
        gain = self.find(f"{place}.row_gain")
        masked: Array = mask * weight
        return masked if gain is None else masked * gain[:, None]

    def _rounded(self, place: str) -> Array | None:
        stack, part = _stack_and_part(place)
        for owner in (place, f"{stack}.{SHARED_LAYER}.{part}"):
            name = f"{owner}.latent"
            levels, scales = self.find(name), self.find(name_of_scales(name))
            if levels is not None and scales is not None:
                scaled: Array = levels * scales
                return scaled
        return None

    def vector(self, name: str, size: int, otherwise: float = 0.0) -> Array:
        """Return the vector of a bias or a LayerNorm. If the model lacks this vector, return one with ``otherwise`` in all entries."""
        found = self.find(name)
        return np.full(size, otherwise, dtype=np.float32) if found is None else found

    def layers(self, stack: str) -> int:
        """Return the number of layers of a stack."""
        numbers = [int(found[1]) for name in self.arrays if (found := re.match(rf"{stack}\.layers\.(\d+)\.", name))]
        return max(numbers, default=-1) + 1

    def refuse_unused(self) -> None:
        """Refuse an export with a tensor that no part of a Transformer uses, such as an adapter.

        Raises:
            CannotConvert: the export has an unused tensor.
        """
        for name in sorted(self.arrays.keys() - self._used):
            if not _BOOKKEEPING.fullmatch(name):
                raise CannotConvert(f"{self.path}: {name[:80]} is not a tensor of CTranslate2's Transformer")


def _stack_and_part(place: str) -> tuple[str, str]:
    """Split ``encoder.layers.2.self_attn.q_proj`` into ("encoder", "self_attn.q_proj")."""
    stack, _, part = re.sub(r"\.layers\.\d+\.", ".", place).partition(".")
    return stack, part

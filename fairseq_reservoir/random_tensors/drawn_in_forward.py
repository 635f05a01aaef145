"""Memory-saving inference: draw a layer's random tensors when the layer runs, instead of storing the random tensors of all layers.

At most one layer's random tensors are in memory. They are kept until another layer needs its tensors, because one layer may run many times.
Such a layer is, for example, the only frozen layer of a decoder, or the random layer that a supermask model applies at every depth.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from .recipe import Recipe

# Dtypes in which the model may have been trained. Drawn values are rounded to the dtype of the training.
ROUNDINGS = (torch.float32, torch.float16, torch.bfloat16)


class DrawnTensor:
    """A parameter or buffer of ``owner``. A forward pass of its layer draws the values. They stay until another layer draws its tensors.

    Args:
        owner, name: the module and the name of its tensor.
        recipe, seed: the recipe draws the values from the seed.
        rounding: dtype to which the drawn values are rounded, before they are converted to ``dtype``.
        dtype: dtype of the tensor.
        keeps_dtype: whether the tensor keeps ``dtype`` if the model is converted to another dtype.
    """

    def __init__(
        self,
        owner: nn.Module,
        name: str,
        recipe: Recipe,
        seed: int,
        rounding: torch.dtype,
        dtype: torch.dtype,
        keeps_dtype: bool,
    ) -> None:
        self.owner, self.name, self.recipe, self.seed = owner, name, recipe, seed
        self.rounding, self.dtype, self.keeps_dtype = rounding, dtype, keeps_dtype
        self.release()

    @property
    def tensor(self) -> Tensor:
        found: Tensor = getattr(self.owner, self.name)
        return found

    def draw(self) -> Tensor:
        """Draw the values on the device of the model."""
        tensor = self.tensor
        value: Tensor = self.recipe.draw(self.seed).to(self.rounding).to(self.dtype)
        drawn: Tensor = value.to(tensor.device, self.dtype if self.keeps_dtype else tensor.dtype)
        return drawn

    def is_there(self) -> bool:
        """Return True if the values are in memory and were not rounded when the whole model was converted to another dtype."""
        return self.tensor.numel() > 0 and not (self.keeps_dtype and self.tensor.dtype != self.dtype)

    def release(self) -> None:
        """Remove the values, and keep device and dtype."""
        self.tensor.data = self.tensor.data.new_empty(0)

    def identity(self) -> tuple[Any, ...]:
        """Return a key that is equal for tensors with the same values."""
        kept = self.dtype if self.keeps_dtype else self.tensor.dtype
        return self.recipe, self.seed, self.rounding, self.dtype, kept, self.tensor.device


class DrawnLayer:
    """The random tensors in memory. They belong to the layer that ran last."""

    def __init__(self) -> None:
        self.tensors: Sequence[DrawnTensor] = ()

    def before(self, layer: nn.Module, tensors: Sequence[DrawnTensor]) -> None:
        """Draw ``tensors`` before each forward pass of ``layer``."""
        layer.register_forward_pre_hook(partial(self._enter, tensors))

    @torch.no_grad()
    def _enter(self, tensors: Sequence[DrawnTensor], layer: nn.Module, inputs: Any) -> None:
        if tensors is self.tensors and all(drawn.is_there() for drawn in tensors):
            return
        needed = {drawn.identity() for drawn in tensors}
        kept = {one.identity(): one.tensor.data for one in self.tensors if one.identity() in needed and one.is_there()}
        for drawn in self.tensors:
            drawn.release()
        self.tensors = tensors
        for drawn in tensors:
            value = kept.get(drawn.identity())
            drawn.tensor.data = drawn.draw() if value is None else value


@torch.no_grad()
def drawn_tensor(
    owner: nn.Module, name: str, recipe: Recipe, seed: int, stored: Tensor, keeps_dtype: bool = False
) -> DrawnTensor | None:
    """Release a tensor if it can be drawn again with the bits of ``stored``. Otherwise change nothing and return None."""
    if tuple(stored.shape) != recipe.shape or stored.is_meta:
        return None
    value = recipe.draw(seed)
    for rounding in ROUNDINGS:
        if value.to(rounding).to(stored.dtype).equal(stored.cpu()):
            return DrawnTensor(owner, name, recipe, seed, rounding, stored.dtype, keeps_dtype)
    return None

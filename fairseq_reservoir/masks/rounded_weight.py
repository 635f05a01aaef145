"""Trained matrices that are rounded to a few levels. They are the baseline for masked random matrices of the same size in bits."""

from collections.abc import Callable, Mapping
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from ..random_tensors.recipe import Recipe
from .levels import SCALES, Levels
from .masked_embedding import ComputedEmbedding
from .masked_linear import ComputedLinear, all_rows
from .masked_weight import never_below_32_bits, stamp_of


class RoundedWeight(nn.Module):
    """Rounded matrix W' = s * level(W / s) with the trained matrix W, (rows, columns), and its scales s, (rows, 1) or (1, 1).

    The parameter ``latent`` is W. It stays float32 after half() and bfloat16(). Its gradient is the gradient of W'
    (straight-through estimator without clipping; Hubara et al., 2016, "Binarized Neural Networks"). The buffer ``like``, which
    is not saved, has the dtype of W'.

    In the state dict of an export, ``latent`` contains levels instead of W, and the buffer ``scales`` is s. After loading such a
    state dict, the module computes W' as the product of both, and cannot be trained.

    Args:
        rows, columns: shape of W.
        levels: levels to round to, see ``Levels``.
        init: initialiser of W, a key of ``random_tensors.recipe.INITIALISERS``.
        gain: the initial values are multiplied by this factor.
        seed, name: the initial values depend only on these.
        zero_row: index of a row that is always 0, such as the padding row of an embedding.
    """

    scales: Tensor | None
    like: Tensor

    def __init__(
        self,
        rows: int,
        columns: int,
        levels: Levels,
        *,
        init: str = "kaiming_uniform",
        gain: float = 1.0,
        seed: int = 1,
        name: str = "weight",
        zero_row: int | None = None,
    ) -> None:
        super().__init__()
        self.levels, self.zero_row = levels, zero_row
        self.weight_shape = torch.Size((rows, columns))
        recipe = Recipe(init, name, (rows, columns), scale=gain, zero_row=zero_row)
        self.latent = nn.Parameter(recipe.draw(seed))
        self.register_buffer(SCALES, None)
        self.register_buffer("like", torch.empty(0), persistent=False)
        self._kept: tuple[Any, Tensor] | None = None

    @property
    def weight(self) -> Tensor:
        """The rounded matrix (rows, columns), differentiable with respect to ``latent``."""
        if torch.is_grad_enabled() and self.scales is None:
            rounded: Tensor = _ThroughRounding.apply(self.latent, self._rounded(), self.zero_row)  # type: ignore[no-untyped-call]  # torch's
            return rounded
        if self.training:
            return self._rounded()
        stamp = stamp_of(self.latent, self.like)
        if self._kept is None or self._kept[0] != stamp:
            self._kept = (stamp, self._rounded())
        return self._kept[1]

    @torch.no_grad()
    def _rounded(self) -> Tensor:
        levels, scales = self.levels_and_scales()
        return (levels * scales).to(self.like.dtype)

    @torch.no_grad()
    def levels_and_scales(self) -> tuple[Tensor, Tensor]:
        """Return both factors of W', in float32: levels (rows, columns), and scales (rows, 1) or (1, 1)."""
        latent = self.latent.detach()
        if self.scales is not None:
            return latent, self.scales
        scales = self.levels.scales(latent)
        return self.levels.nearest(latent, scales), scales

    @property
    def device(self) -> torch.device:
        return self.latent.device

    def folded(self) -> nn.Module:
        """Return an ordinary module with the rounded matrix. The linear and embedding mix-ins define this method."""
        raise NotImplementedError

    def extra_repr(self) -> str:
        return str(self.levels)

    def train(self, mode: bool = True) -> Self:
        self._kept = None
        return super().train(mode)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Convert the module, as half() and to() do. W and the scales stay float32, but move to another device."""
        self._kept = None
        whole = [t for t in (self.latent, self.latent.grad, self.scales) if t is not None]
        super()._apply(never_below_32_bits(fn, whole), recurse)  # type: ignore[no-untyped-call]  # torch's
        return self

    def _load_from_state_dict(self, state_dict: Mapping[str, Any], prefix: str, *args: Any, **kwargs: Any) -> None:
        self._kept = None
        scales = state_dict.get(prefix + SCALES)
        self.scales = None if scales is None else torch.empty_like(scales, device=self.latent.device)
        super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)


class _ThroughRounding(torch.autograd.Function):
    """Straight-through estimator: return W', and pass its gradient on to W, with 0 in the row ``zero_row``."""

    @staticmethod
    def forward(ctx: Any, latent: Tensor, rounded: Tensor, zero_row: int | None) -> Tensor:
        ctx.dtype, ctx.zero_row = latent.dtype, zero_row
        return rounded.detach()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        grad = grad.to(ctx.dtype, copy=ctx.zero_row is not None)
        if ctx.zero_row is not None:
            grad[ctx.zero_row] = 0
        return grad, None, None


class RoundedLinear(ComputedLinear, RoundedWeight):
    """Linear layer y = x W'^T; x: (..., in_features), y: (..., out_features).

    The arguments are in_features, out_features, levels and the keyword arguments of ``RoundedWeight``.
    """


class SharedLinear(nn.Module):
    """Reference to a ``RoundedLinear`` that is registered elsewhere in the model. It has no tensors of its own."""

    def __init__(self, owner: RoundedLinear) -> None:
        super().__init__()
        self._owner = (owner,)

    @property
    def owner(self) -> RoundedLinear:
        return self._owner[0]

    @property
    def weight(self) -> Tensor:
        return self.owner.weight

    @property
    def bias(self) -> Tensor:
        return self.owner.bias

    def forward(self, x: Tensor) -> Tensor:
        return all_rows(x, self.owner.weight)

    def extra_repr(self) -> str:
        return self.owner.extra_repr()


class RoundedEmbedding(ComputedEmbedding, RoundedWeight):
    """Embedding with the vectors W'; tokens: (...), int64 -> (..., embedding_dim).

    The arguments are num_embeddings, embedding_dim, padding_idx, levels and the keyword arguments of ``RoundedWeight``.
    """


def rounded_modules(model: nn.Module) -> dict[str, RoundedWeight]:
    """Return all rounded modules of a model, by name."""
    return {name: m for name, m in model.named_modules() if isinstance(m, RoundedWeight)}

"""Trained matrices that are rounded to a few levels: the baseline for masked random matrices with the same number of bits."""

from collections.abc import Callable, Mapping
from typing import Any, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from ..random_tensors.recipe import Recipe
from .levels import SCALES, Levels
from .masked_embedding import ordinary_embedding
from .masked_linear import all_rows, ordinary_linear
from .masked_weight import never_below_32_bits, stamp_of


class RoundedWeight(nn.Module):
    """Rounded matrix W' = s * level(W / s) with the trained matrix W, (rows, columns), and its scales s, (rows, 1) or (1, 1).

    The parameter ``latent`` is W. It stays float32 after half() and bfloat16(). Its gradient is the gradient of W'
    (straight-through estimator without clipping; Hubara et al., 2016, "Binarized Neural Networks"). W' has the dtype of
    ``like``, a buffer that is not saved.

    In the state dict of an export, ``latent`` has the levels in place of W, and the buffer ``scales`` is s. A module that has
    loaded such a state dict computes W' as their product, and cannot be trained.

    Args:
        rows, columns: shape of W.
        levels: levels to round to, see ``Levels``.
        init: initialiser of W, a key of ``random_tensors.recipe.INITIALISERS``.
        gain: factor of the initial values.
        seed, name: these determine the initial values.
        zero_row: a row that is always 0, such as the padding row of an embedding.
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
        """The two factors of the rounded matrix, both float32: levels (rows, columns), and scales (rows, 1) or (1, 1)."""
        latent = self.latent.detach()
        if self.scales is not None:
            return latent, self.scales
        scales = self.levels.scales(latent)
        return self.levels.nearest(latent, scales), scales

    @property
    def device(self) -> torch.device:
        return self.latent.device

    def folded(self) -> nn.Module:
        """Return an ordinary module with the rounded matrix."""
        raise NotImplementedError

    def train(self, mode: bool = True) -> Self:
        self._kept = None
        return super().train(mode)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Convert the module, as in half() and to(). W and its scales change device but stay float32."""
        self._kept = None
        whole = [t for t in (self.latent, self.latent.grad, self.scales) if t is not None]
        super()._apply(never_below_32_bits(fn, whole), recurse)  # type: ignore[no-untyped-call]  # torch's
        return self

    def _load_from_state_dict(self, state_dict: Mapping[str, Any], prefix: str, *args: Any, **kwargs: Any) -> None:
        self._kept = None
        given = state_dict.get(prefix + SCALES)
        self.scales = None if given is None else torch.empty_like(given, device=self.latent.device)
        super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)


class _ThroughRounding(torch.autograd.Function):
    """Straight-through estimator: return W', and use its gradient as the gradient of W. The gradient of ``zero_row`` is 0."""

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


class RoundedLinear(RoundedWeight):
    """Linear layer y = x W'^T; x: (..., in_features), y: (..., out_features). ``bias`` is a buffer of zeros, as in ``MaskedLinear``."""

    bias: Tensor
    # The output is x times the transposed ``weight`` and nothing else, so that --fast can compute it slice by slice.
    is_product = True

    def __init__(self, in_features: int, out_features: int, levels: Levels, **options: Any) -> None:
        super().__init__(out_features, in_features, levels, **options)
        self.in_features, self.out_features = in_features, out_features
        self.register_buffer("bias", torch.zeros(out_features), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        return all_rows(x, self.weight)

    @torch.no_grad()
    def folded(self) -> nn.Linear:
        """Return an ordinary linear layer with the rounded matrix and a bias of 0."""
        return ordinary_linear(self.weight, self.bias, self.training)

    def extra_repr(self) -> str:
        return f"in_features={self.in_features}, out_features={self.out_features}, {self.levels}"


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


class RoundedEmbedding(RoundedWeight):
    """Embedding with the vectors W'; tokens: (...), int64 -> (..., embedding_dim). The row of ``padding_idx`` is always 0."""

    def __init__(
        self, num_embeddings: int, embedding_dim: int, padding_idx: int | None, levels: Levels, **options: Any
    ) -> None:
        super().__init__(num_embeddings, embedding_dim, levels, zero_row=padding_idx, **options)
        self.num_embeddings, self.embedding_dim, self.padding_idx = num_embeddings, embedding_dim, padding_idx

    def forward(self, tokens: Tensor) -> Tensor:
        return F.embedding(tokens, self.weight, self.padding_idx)

    @torch.no_grad()
    def folded(self) -> nn.Embedding:
        """Return an ordinary embedding with the rounded matrix."""
        return ordinary_embedding(self.weight, self.padding_idx, self.training)

    def extra_repr(self) -> str:
        return f"{self.num_embeddings}, {self.embedding_dim}, padding_idx={self.padding_idx}, {self.levels}"


def rounded_modules(model: nn.Module) -> dict[str, RoundedWeight]:
    """All rounded modules of a model, by name."""
    return {name: m for name, m in model.named_modules() if isinstance(m, RoundedWeight)}

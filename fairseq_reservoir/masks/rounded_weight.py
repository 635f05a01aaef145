"""A trained matrix that is used rounded to a few levels: the control of a random one behind a mask, of as many bits."""

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
    """W' = s * level(W / s), with W trained and s its scales; W: (rows, columns), s: (rows, 1) or (1, 1), see ``Levels``.

    Trained: ``latent``, parameter, W, float32 also after half() and bfloat16(). Its gradient is that of W', straight through
    the rounding and through s (Hubara et al., 2016, "Binarized Neural Networks"); nothing is clipped. W' has the type of
    ``like``, a buffer that no checkpoint holds.

    A state with ``scales``, as an export gives, has levels in place of W: the module then multiplies both and trains no more.

    Args:
        rows, columns: shape of W.
        levels: what it is rounded to.
        init: initialiser of W, a key of ``random_tensors.recipe.INITIALISERS``.
        gain: multiplies its values.
        seed, name: what these depend on.
        zero_row: a row that is 0 and stays 0, as that of an embedding's padding.
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
        """The rounded matrix (rows, columns), differentiable in the latent one."""
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
        """What the matrix is the product of, both float32: (rows, columns), and (rows, 1) or (1, 1)."""
        latent = self.latent.detach()
        if self.scales is not None:
            return latent, self.scales
        scales = self.levels.scales(latent)
        return self.levels.of(latent, scales), scales

    @property
    def device(self) -> torch.device:
        return self.latent.device

    def folded(self) -> nn.Module:
        """An ordinary module with the rounded matrix."""
        raise NotImplementedError

    def train(self, mode: bool = True) -> Self:
        self._kept = None
        return super().train(mode)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Conversions, such as half() and to(): W and its scales follow to the device, but never below 32 bits."""
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
    """W', differentiated as if it were W; the gradient of ``zero_row`` is 0."""

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
    """y = x W'^T; x: (..., in_features), y: (..., out_features). ``bias`` is a buffer of zeros, as in ``MaskedLinear``."""

    bias: Tensor

    def __init__(self, in_features: int, out_features: int, levels: Levels, **options: Any) -> None:
        super().__init__(out_features, in_features, levels, **options)
        self.in_features, self.out_features = in_features, out_features
        self.register_buffer("bias", torch.zeros(out_features), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        return all_rows(x, self.weight)

    @torch.no_grad()
    def folded(self) -> nn.Linear:
        """An ordinary linear layer with the rounded matrix and a bias of 0."""
        return ordinary_linear(self.weight, self.bias, self.training)

    def extra_repr(self) -> str:
        return f"in_features={self.in_features}, out_features={self.out_features}, {self.levels}"


class SharedLinear(nn.Module):
    """A ``RoundedLinear`` that is registered elsewhere, and used here too: this has no tensor of its own."""

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
    """Rows of W'; tokens: (...), int64 -> (..., embedding_dim). The row of ``padding_idx`` is 0 and stays 0."""

    def __init__(
        self, num_embeddings: int, embedding_dim: int, padding_idx: int | None, levels: Levels, **options: Any
    ) -> None:
        super().__init__(num_embeddings, embedding_dim, levels, zero_row=padding_idx, **options)
        self.num_embeddings, self.embedding_dim, self.padding_idx = num_embeddings, embedding_dim, padding_idx

    def forward(self, tokens: Tensor) -> Tensor:
        return F.embedding(tokens, self.weight, self.padding_idx)

    @torch.no_grad()
    def folded(self) -> nn.Embedding:
        """An ordinary embedding with the rounded matrix."""
        return ordinary_embedding(self.weight, self.padding_idx, self.training)

    def extra_repr(self) -> str:
        return f"{self.num_embeddings}, {self.embedding_dim}, padding_idx={self.padding_idx}, {self.levels}"


def rounded_modules(model: nn.Module) -> dict[str, RoundedWeight]:
    """The rounded modules in a model, by name."""
    return {name: m for name, m in model.named_modules() if isinstance(m, RoundedWeight)}

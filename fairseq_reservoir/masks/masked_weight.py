"""Frozen random matrices with learned masks. All masks of a model are selected together, once per update.

``MaskedWeight.weight`` reads the mask and the masked weight from a ``MaskCache``. The cache selects masks (``selection.select_masks``)
again if the scores may have changed. The cache is emptied by a new update number (``set_num_updates``), a change between training and
evaluation, a loaded state dict, and a conversion to another dtype or device. torch's version counters do not detect all changes, because
fairseq's optimizers write to ``p.data``. In training without update numbers, masks are selected at every use.
"""

import math
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from ..errors import InputError
from ..plan.mask_choices import MaskChoices, Ratio
from ..random_tensors import philox
from ..random_tensors.recipe import Recipe
from ..random_tensors.tensors import drawn
from .pinned_mask import draw_pinned, pinned_per_row
from .selection import select_masks

Stamp = tuple[Any, ...]
Selected = tuple[Tensor, Tensor, Stamp]
WEIGHT_INITIALISERS = ("kaiming_uniform", "kaiming_normal", "xavier_uniform", "xavier_normal", "signed_constant")


class MaskedWeight(nn.Module):
    """Masked weight W' = g (W * M) with a random frozen matrix W and a mask M, which is selected by learned scores S.

    W and M: (rows, columns). g: a trained factor for each row, (rows, 1), or 1.

    The parameter ``scores`` is S, (rows, columns - p), where p is the number of pinned entries per row. Pinned entries are drawn at
    random and have no scores. S stays float32 after half() and bfloat16(). ``scores`` is None for a random mask. The parameter
    ``row_gain`` is g, (rows,), or None. The buffer ``frozen_weight`` is W.

    The gradient of S is the gradient of W * M, multiplied by W. If the mask is binary and scores are ranked by magnitude, the product
    is also multiplied by sign(S). Dropped entries have a gradient too, so a later mask can keep them (Ramanujan et al., 2020).

    S is drawn from U(-1/sqrt(columns), 1/sqrt(columns)). With scope "global", S is drawn from U(-1/16, 1/16), so that every tensor keeps
    the same share at the start. W is drawn by ``init`` with fan_in ``columns``, and multiplied by ``gain``. S and W depend only on the seed
    and the name. If no seed is given, a seed is drawn from torch's generator.

    Args:
        rows, columns: shape of W.
        keep_ratio: share of the weights that the mask keeps.
        choices: the other fields of ``MaskChoices``, by name.
        init: one of ``WEIGHT_INITIALISERS``.
        gain: W is multiplied by this factor; the default is ``MaskChoices.gain``, sqrt(1 / keep_ratio).
        seed, name: all random tensors depend only on these.
        zero_row: index of a row of W to set to 0.
        row_gain: whether to train the factors g, initially 1.
        shared: a module and the name of the buffer to use as W. The module must be registered elsewhere in the model. It is not
            registered here, so that W stays a single tensor after half(), to(), deepcopy and load_state_dict.

    Attributes:
        recipes: ``frozen_weight`` -> the recipe of W; empty if W is shared.

    Raises:
        ValueError: an unknown ``init``, invalid choices (``MaskChoices``), a shared buffer with a shape other than W's, or a
            pinned or random mask without a seed.
    """

    frozen_weight: Tensor
    pinned: Tensor | None
    learned: Tensor | None
    scores: nn.Parameter | None
    row_gain: nn.Parameter | None
    num_updates: Tensor

    def __init__(
        self,
        rows: int,
        columns: int,
        keep_ratio: float = 0.5,
        *,
        init: str = "kaiming_uniform",
        gain: float | None = None,
        seed: int | None = None,
        name: str = "weight",
        zero_row: int | None = None,
        row_gain: bool = False,
        shared: tuple[nn.Module, str] | None = None,
        **choices: Any,
    ) -> None:
        super().__init__()
        self.choices = MaskChoices(keep_ratio, **choices)
        self.weight_shape = torch.Size((rows, columns))
        self.mask_cache = MaskCache([self])
        if seed is None and (self.choices.pin or self.choices.random):
            raise ValueError(
                "seed None: a pinned or random mask needs a seed, because it is drawn from the seed and not stored"
            )
        seed = int(torch.randint(2**62, (), device="cpu")) if seed is None else seed
        # The tuple keeps torch from registering the owner as a submodule.
        self._owner = shared and (shared[0],)
        self._owner_buffer = shared and shared[1]
        self.recipes: dict[str, Recipe] = {}
        if shared is None:
            recipe = weight_recipe(self.weight_shape, self.choices, init, gain, name, zero_row)
            self.recipes["frozen_weight"] = recipe
            self.register_buffer("frozen_weight", recipe.draw(seed))
        elif self.frozen_weight.shape != self.weight_shape:
            raise ValueError(
                f"shared {shared[1]} {tuple(self.frozen_weight.shape)}: must be {tuple(self.weight_shape)}"
            )
        learned = columns - pinned_per_row(columns, self.choices)
        pinned = learned_columns = None
        self.pinned_counts = [0] * len(self.choices.keep_ratios)
        if learned < columns:
            pinned, learned_columns, self.pinned_counts = draw_pinned(self.weight_shape, self.choices, seed, name)
        self.register_buffer("pinned", pinned, persistent=False)
        self.register_buffer("learned", learned_columns, persistent=False)
        self.register_parameter("scores", None)
        if learned:
            bound = 1 / 16 if self.choices.scope == "global" else 1 / math.sqrt(columns)
            self.scores = nn.Parameter(drawn(philox.uniform, seed, f"{name}.scores", (rows, learned), bound))
        self.register_parameter("row_gain", nn.Parameter(torch.ones(rows)) if row_gain else None)
        if self.choices.keep_schedule:
            self.register_buffer("num_updates", torch.zeros((), dtype=torch.int64))
        self._scheduled_update = 0

    def __getattr__(self, name: str) -> Any:
        if name == "frozen_weight" and (owner := self.__dict__.get("_owner")):
            return getattr(owner[0], self.__dict__["_owner_buffer"])
        return super().__getattr__(name)

    @property
    def weight(self) -> Tensor:
        """The masked weight, (rows, columns), in the dtype of W. It is differentiable with respect to the scores and the row gain."""
        weight = self.mask_cache.get(self)[1]
        if self.scores is not None and torch.is_grad_enabled():
            follow_sign = self.choices.ranking == "magnitude" and self.choices.kind == "binary"
            weight = _ThroughMask.apply(self.scores, weight, self.frozen_weight, follow_sign, self.learned)  # type: ignore[no-untyped-call]  # torch's
        return times_rows(weight, self.row_gain)

    @property
    def mask(self) -> Tensor:
        """The current mask: bool, or int8 if it is signed or a sum of several masks (``MaskChoices.coats``)."""
        return self.mask_cache.get(self)[0]

    @property
    def recipe(self) -> Recipe | None:
        """The recipe of W; None if W was not drawn from the seed, like pretrained embeddings."""
        owner = self._owner[0] if self._owner else self
        recipes: dict[str, Recipe] = getattr(owner, "recipes", {})
        return recipes.get(self._owner_buffer or "frozen_weight")

    @property
    def keep_ratios(self) -> tuple[Ratio, ...]:
        """Keep ratio of each mask at the current update: the ratio of the first mask, then the ratios ``MaskChoices.coats``."""
        return self.choices.keep_ratios_at(self._scheduled_update)

    @property
    def device(self) -> torch.device:
        return self.frozen_weight.device

    def set_num_updates(self, num_updates: int) -> None:
        """Set the update number. fairseq calls this before every batch. Within an update, masks are reused."""
        if self.choices.keep_schedule and num_updates != self._scheduled_update:
            self.num_updates.fill_(num_updates)
            self._scheduled_update = num_updates
        self.mask_cache.set_num_updates(num_updates)

    def train(self, mode: bool = True) -> Self:
        if mode != self.training:
            self.mask_cache.forget(self)
        return super().train(mode)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Convert the module, as half() and to() do. Scores are moved to the new device, but stay float32."""
        self.mask_cache.forget(self)
        scores = [] if self.scores is None else [t for t in (self.scores, self.scores.grad) if t is not None]
        super()._apply(never_below_32_bits(fn, scores), recurse)  # type: ignore[no-untyped-call]  # torch's
        return self

    def _load_from_state_dict(self, *args: Any, **kwargs: Any) -> None:
        super()._load_from_state_dict(*args, **kwargs)
        self.mask_cache.forget(self)
        if self.choices.keep_schedule:
            self._scheduled_update = int(self.num_updates)

    def extra_repr(self) -> str:
        return str(self.choices)


def weight_recipe(
    shape: Sequence[int], choices: MaskChoices, init: str, gain: float | None, name: str, zero_row: int | None = None
) -> Recipe:
    """Return the recipe of a random weight W. ``gain`` defaults to ``choices.gain``."""
    if init not in WEIGHT_INITIALISERS:
        raise ValueError(f"init {init}: must be one of {', '.join(WEIGHT_INITIALISERS)}")
    return Recipe(init, name, tuple(shape), scale=choices.gain if gain is None else gain, zero_row=zero_row)


class MaskCache:
    """Cache of the masks and masked weights of the modules ``members``."""

    def __init__(self, members: list[MaskedWeight]) -> None:
        self.members = members
        self.num_updates: int | None = None
        self._kept: dict[MaskedWeight, Selected] = {}

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_kept": {}}

    def set_num_updates(self, num_updates: int) -> None:
        """Start an update. Another call with the same number, as in gradient accumulation, has no effect."""
        if num_updates != self.num_updates:
            self.num_updates = num_updates
            self.forget()

    def forget(self, member: MaskedWeight | None = None) -> None:
        """Empty the cache of one member, or of all members. Call this after writing to ``scores.data``."""
        if member is None:
            self._kept.clear()
        else:
            self._kept.pop(member, None)

    def get(self, member: MaskedWeight) -> tuple[Tensor, Tensor]:
        """Return the mask and the masked weight of a member."""
        if member.training and self.num_updates is None:
            return self._select([member])[member][:2]
        if not self._is_fresh(member):
            self._kept.update(self._select([m for m in self.members if not self._is_fresh(m)]))
        return self._kept[member][:2]

    def last_used(self, member: MaskedWeight) -> Tensor | None:
        """Return the cached mask of a member, even if the scores have changed since it was selected. Return None if no mask is cached."""
        return self._kept[member][0] if member in self._kept else None

    def _is_fresh(self, member: MaskedWeight) -> bool:
        return member in self._kept and self._kept[member][2] == _stamp_of_mask(member)

    @torch.inference_mode(False)
    @torch.no_grad()
    def _select(self, members: list[MaskedWeight]) -> dict[MaskedWeight, Selected]:
        """Select the masks of the members. Return (mask, masked weight, ``_stamp_of_mask``) for each member."""
        wanted = set(members)
        if any(m.choices.scope == "global" for m in members):
            members = [m for m in self.members if m in wanted or m.choices.scope == "global"]
        batches: dict[Any, list[MaskedWeight]] = {}
        for m in members:
            shape = None if m.choices.scope == "global" else m.weight_shape
            batches.setdefault((shape, m.choices, m.keep_ratios, m.device), []).append(m)
        kept = {}
        for batch in batches.values():
            for m, mask in zip(batch, _masks_of(batch)):
                kept[m] = (mask, _times_mask(m.frozen_weight, mask), _stamp_of_mask(m))
        return kept


def _times_mask(weight: Tensor, mask: Tensor) -> Tensor:
    """Compute W * M in the dtype of W. On a CPU the mask is converted first, because this is several times faster."""
    return mask.to(weight.dtype).mul_(weight) if weight.device.type == "cpu" else torch.mul(weight, mask)


def _masks_of(members: list[MaskedWeight]) -> Iterator[Tensor]:
    """Select the masks of weights with the same mask choices, including pinned entries. Shapes may differ only with scope "global"."""
    choices, shape = members[0].choices, members[0].weight_shape
    together = members if choices.scope == "global" else members[:1]
    size = shape[-1] if choices.scope == "row" else sum(m.weight_shape.numel() for m in together)
    pinned = [sum(counts) for counts in zip(*(m.pinned_counts for m in together))]
    scores = [m.scores for m in members if m.scores is not None]
    selected = iter(select_masks(scores, choices, members[0].keep_ratios, size, pinned) if scores else ())
    for m in members:
        if m.scores is None:
            assert m.pinned is not None
            yield m.pinned
        elif m.pinned is None or m.learned is None:
            yield next(selected)
        else:
            yield m.pinned.scatter(1, m.learned, next(selected))


def _stamp_of_mask(member: MaskedWeight) -> Stamp:
    tensors = [member.frozen_weight] + ([] if member.scores is None else [member.scores])
    return (member.keep_ratios, *stamp_of(*tensors))


def stamp_of(*tensors: Tensor) -> Stamp:
    """Return a fingerprint of tensors, for detecting changes.

    It contains the storage, the dtype and torch's version counter of each tensor. It does not detect writing to ``.data``, or writing in
    inference mode.
    """
    return tuple((t.data_ptr(), None if t.is_inference() else t._version, t.dtype) for t in tensors)


class _ThroughMask(torch.autograd.Function):
    """Straight-through estimator: return W * M, and use the gradient of the mask M as the gradient of the scores.

    The gradient of the scores is W * G, where G is the gradient of the masked weight. With ``follow_sign``, this product is also multiplied
    by sign(scores). ``learned`` contains the indices of the columns with scores; None for all columns.
    """

    @staticmethod
    def forward(
        ctx: Any,
        scores: Tensor,
        masked_weight: Tensor,
        frozen_weight: Tensor,
        follow_sign: bool,
        learned: Tensor | None,
    ) -> Tensor:
        ctx.save_for_backward(scores, frozen_weight, learned)
        ctx.follow_sign = follow_sign
        return masked_weight.detach()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        scores, frozen_weight, learned = ctx.saved_tensors
        if learned is not None:
            grad, frozen_weight = grad.gather(1, learned), frozen_weight.gather(1, learned)
        if ctx.follow_sign:
            slope = scores.sign().mul_(frozen_weight).mul_(grad)
        else:
            slope = frozen_weight.to(scores.dtype) * grad
        return slope, None, None, None, None


def times_rows(weight: Tensor, gain: Tensor | None) -> Tensor:
    """Multiply each row of ``weight`` by the row's gain, in the dtype of ``weight``. If ``gain`` is None, return ``weight``."""
    return weight if gain is None else weight * gain.to(weight.dtype).unsqueeze(1)


def never_below_32_bits(fn: Callable[[Tensor], Tensor], whole: Sequence[Tensor]) -> Callable[[Tensor], Tensor]:
    """Wrap a conversion such as half(). The tensors in ``whole`` are moved to the new device, but stay float32."""

    def convert(tensor: Tensor) -> Tensor:
        converted = fn(tensor)
        if any(tensor is t for t in whole) and converted.dtype in (torch.half, torch.bfloat16):
            return tensor.to(converted.device, torch.float32)
        return converted

    return convert


def masked_modules(model: nn.Module) -> dict[str, MaskedWeight]:
    """Return all masked modules of a model, by name."""
    return {name: m for name, m in model.named_modules() if isinstance(m, MaskedWeight)}


def share_mask_cache(model: nn.Module) -> MaskCache:
    """Give all masked modules of a model one cache, so that masks of equal shape are selected in one call. Call this once per model."""
    members = list(masked_modules(model).values())
    cache = MaskCache(members)
    for m in members:
        m.mask_cache = cache
    return cache


def nan_scores(model: nn.Module) -> list[str]:
    """Return the names of score tensors with a NaN. This synchronises with the device once."""
    scores = {
        f"{name}.scores".lstrip("."): m.scores for name, m in masked_modules(model).items() if m.scores is not None
    }
    if not scores:
        return []
    found = torch.stack([s.detach().isnan().any() for s in scores.values()]).tolist()
    return [name for name, has_nan in zip(scores, found) if has_nan]


def refuse_moving_masks(model: nn.Module, given: str, frozen: Collection[Tensor] | None = None) -> None:
    """Refuse to freeze the scores of a mask if the mask would still change.

    Args:
        model: a model with or without masks.
        given: the flag that freezes the scores, for the error message.
        frozen: all frozen parameters. By default, the parameters without ``requires_grad``.

    Raises:
        InputError: the mask of frozen scores also depends on trained scores or on the number of the update.
    """
    learned = {name: masked for name, masked in masked_modules(model).items() if masked.scores is not None}
    frozen_ids = {id(p) for p in model.parameters() if not p.requires_grad} if frozen is None else set(map(id, frozen))
    some_trained = any(id(masked.scores) not in frozen_ids for masked in learned.values())
    for name, masked in learned.items():
        if id(masked.scores) not in frozen_ids:
            continue
        flag = reason = None
        if masked.choices.keep_schedule:
            flag, reason = "--mask-keep-schedule", "shrinks every mask"
        if masked.choices.scope == "global" and some_trained:
            flag, reason = "--mask-scope global", "ranks the scores of all masks together"
        if flag:
            raise InputError(
                f"{given}: freezes the scores of {name}, but their mask would still change, because {flag} {reason}; remove {flag}, or do "
                "not freeze these scores"
            )

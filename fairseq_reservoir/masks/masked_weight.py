"""A frozen random matrix multiplied by a learned mask; masks are selected once per update, for the whole model together.

From scores to the weight that a layer multiplies by: ``MaskedWeight.weight`` asks its ``MaskCache``, which selects anew where
scores may have changed (``selection.select_masks``), and multiplies the mask into W. Factors of the rows, if there are any, come last.

A masked weight is reused until something may have changed the scores. Optimizers that write ``p.data``, as fairseq's do,
leave no trace on a tensor, so the cache goes by what it is told: an update number (``set_num_updates``), a change between
training and evaluation, a loaded state, a conversion. In training without any update number, masks are selected anew at
every use, except inside ``cached_masks``.
"""

import contextlib
import math
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from ..errors import InputError
from ..random_tensors import philox
from ..random_tensors.recipe import Recipe
from .pinned_mask import draw_pinned, pinned_per_row
from .selection import MaskChoices, Ratio, select_masks

Stamp = tuple[Any, ...]
Selected = tuple[Tensor, Tensor, Stamp]
WEIGHT_INITIALISERS = ("kaiming_uniform", "kaiming_normal", "xavier_uniform", "xavier_normal", "signed_constant")


class MaskedWeight(nn.Module):
    """W' = g (W * M) with W random and never trained, M a mask of learned scores S; W, M: (rows, columns), g: (rows, 1) or 1.

    Trained: ``scores``, parameter, float32 also after half() and bfloat16(), (rows, columns) less the pinned entries;
    None if the mask is random; ``row_gain``, parameter, g, (rows,), None without. Frozen: ``frozen_weight``, buffer. The gradient
    of S is that of W * M, times W, times sign(S) where magnitudes rank an unsigned mask. It reaches the entries that the mask
    leaves out, which is how they come back (Ramanujan et al., 2020).

    S starts as U(-1/sqrt(columns), 1/sqrt(columns)), and as U(-1/16, 1/16) where tensors are ranked together, of which each then
    keeps its share at the start. W is drawn by ``init``, whose fan_in is ``columns``, and multiplied
    by ``gain``. Both depend on the seed and the name only. Without a seed, one is drawn from torch's generator.

    Args:
        rows, columns: shape of W.
        keep_ratio, choices: see ``MaskChoices``; ``choices`` are its other fields by name.
        init: one of ``WEIGHT_INITIALISERS``.
        gain: multiplies W; by default sqrt(1 / keep_ratio), see ``MaskChoices.gain``.
        seed, name: what all random tensors depend on.
        zero_row: a row to set to 0 in W.
        row_gain: train a factor of each row, 1 at the start.
        shared: a module and the name of its buffer to use as W. The module is not registered here: whoever owns it
            registers it once, and W stays one storage, stored once, through half(), to(), deepcopy and load_state_dict.

    Attributes:
        recipes: ``frozen_weight`` -> the recipe that W was drawn by; empty if W is shared.

    Raises:
        ValueError: for an unknown init, choices that ``MaskChoices`` refuses, a shared buffer of another shape, or a pinned
            or random mask without a seed (such a mask is not stored, but drawn again).
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
            raise ValueError("seed None: a pinned or random mask needs a seed, since it is drawn again and not stored")
        seed = int(torch.randint(2**62, (), device="cpu")) if seed is None else seed
        # In a tuple, the owner is a reference and not a child.
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
            self.scores = nn.Parameter(philox.uniform(seed, f"{name}.scores", (rows, learned), bound))
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
        """The masked weight (rows, columns), in the type of the frozen one and differentiable in scores and factors."""
        weight = self.mask_cache.get(self)[1]
        if self.scores is not None and torch.is_grad_enabled():
            follow_sign = self.choices.ranking == "magnitude" and self.choices.kind == "binary"
            weight = _ThroughMask.apply(self.scores, weight, self.frozen_weight, follow_sign, self.learned)  # type: ignore[no-untyped-call]  # torch's
        return times_rows(weight, self.row_gain)

    @property
    def mask(self) -> Tensor:
        """The mask in use: bool, or int8 if it is signed or has several coats."""
        return self.mask_cache.get(self)[0]

    @property
    def recipe(self) -> Recipe | None:
        """The recipe of W; None if it was not drawn, as vectors read from a file."""
        owner = self._owner[0] if self._owner else self
        recipes: dict[str, Recipe] = getattr(owner, "recipes", {})
        return recipes.get(self._owner_buffer or "frozen_weight")

    @property
    def keep_ratios(self) -> tuple[Ratio, ...]:
        """The ratio of each coat at present."""
        return self.choices.keep_ratios_at(self._scheduled_update)

    @property
    def device(self) -> torch.device:
        return self.frozen_weight.device

    def set_num_updates(self, num_updates: int) -> None:
        """fairseq calls this on every module before every batch; it is what lets masks be reused in training."""
        if self.choices.keep_schedule and num_updates != self._scheduled_update:
            self.num_updates.fill_(num_updates)
            self._scheduled_update = num_updates
        self.mask_cache.set_num_updates(num_updates)

    def train(self, mode: bool = True) -> Self:
        if mode != self.training:
            self.mask_cache.forget(self)
        return super().train(mode)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Conversions, such as half() and to(): the scores follow to the device, but never below 32 bits."""
        self.mask_cache.forget(self)
        scores = [] if self.scores is None else [t for t in (self.scores, self.scores.grad) if t is not None]
        super()._apply(never_below_32_bits(fn, scores), recurse)  # type: ignore[no-untyped-call]  # torch's
        return self

    def _load_from_state_dict(self, *args: Any, **kwargs: Any) -> None:
        super()._load_from_state_dict(*args, **kwargs)
        self.mask_cache.forget(self)
        if self.choices.keep_schedule:
            self._scheduled_update = int(self.num_updates)


def weight_recipe(
    shape: Sequence[int], choices: MaskChoices, init: str, gain: float | None, name: str, zero_row: int | None = None
) -> Recipe:
    """How W of ``shape`` is drawn under ``name``: by the initialiser, times ``gain``, by default that of the choices."""
    if init not in WEIGHT_INITIALISERS:
        raise ValueError(f"init {init}: must be one of {', '.join(WEIGHT_INITIALISERS)}")
    return Recipe(init, name, tuple(shape), scale=choices.gain if gain is None else gain, zero_row=zero_row)


class MaskCache:
    """Masks and masked weights of ``members``, which share it; see ``share_mask_cache``."""

    def __init__(self, members: list[MaskedWeight]) -> None:
        self.members = members
        self.num_updates: int | None = None
        self._kept: dict[MaskedWeight, Selected] = {}

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_kept": {}}

    def set_num_updates(self, num_updates: int) -> None:
        """Starts an update; the same number again (gradient accumulation) changes nothing."""
        if num_updates != self.num_updates:
            self.num_updates = num_updates
            self.forget()

    def forget(self, member: MaskedWeight | None = None) -> None:
        """Drops what is kept of one member or of all; call it after changing scores in a way nobody could see."""
        if member is None:
            self._kept.clear()
        else:
            self._kept.pop(member, None)

    @contextlib.contextmanager
    def aside(self) -> Iterator[None]:
        """What is kept is kept again at the end, whatever is done, in another mode of the model, in between."""
        kept = dict(self._kept)
        try:
            yield
        finally:
            self._kept = kept

    def get(self, member: MaskedWeight) -> tuple[Tensor, Tensor]:
        """The mask and the masked weight of a member."""
        if member.training and self.num_updates is None:
            return self._select([member])[member][:2]
        if not self._is_fresh(member):
            self._kept.update(self._select([m for m in self.members if not self._is_fresh(m)]))
        return self._kept[member][:2]

    def last_used(self, member: MaskedWeight) -> Tensor | None:
        """The mask that the member was last used with, though its scores may have changed since; None if it is forgotten."""
        return self._kept[member][0] if member in self._kept else None

    def _is_fresh(self, member: MaskedWeight) -> bool:
        return member in self._kept and self._kept[member][2] == _stamp_of_mask(member)

    @torch.inference_mode(False)
    @torch.no_grad()
    def _select(self, members: list[MaskedWeight]) -> dict[MaskedWeight, Selected]:
        """For each member its mask, its masked weight and the stamp of what they were made from."""
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
                weight = mask.to(m.frozen_weight.dtype).mul_(m.frozen_weight)
                kept[m] = (mask, weight, _stamp_of_mask(m))
        return kept


def _masks_of(members: list[MaskedWeight]) -> Iterator[Tensor]:
    """The whole mask of each member, pinned entries included; they have the same choices, and one shape unless the scope is global."""
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
    """What tensors show of their changes: another storage, or a write that torch counted, as it does not in inference mode.

    A write to ``.data`` is not among it.
    """
    return tuple((t.data_ptr(), None if t.is_inference() else t._version, t.dtype) for t in tensors)


class _ThroughMask(torch.autograd.Function):
    """W * M, differentiated as if the mask M were its scores.

    Gradient of the scores = (gradient of the masked weight) * W [* sign(scores)]. With ``learned``, the scores belong to these
    columns only.
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
        slope = scores.sign() if ctx.follow_sign else torch.ones_like(scores)
        return slope.mul_(frozen_weight).mul_(grad), None, None, None, None


def times_rows(weight: Tensor, gain: Tensor | None) -> Tensor:
    """Each row of ``weight`` times its entry of ``gain``, in the type of ``weight``; None is 1."""
    return weight if gain is None else weight * gain.to(weight.dtype).unsqueeze(1)


def never_below_32_bits(fn: Callable[[Tensor], Tensor], whole: Sequence[Tensor]) -> Callable[[Tensor], Tensor]:
    """The conversion ``fn``, such as half(), by which the tensors ``whole`` follow to the device alone."""

    def convert(tensor: Tensor) -> Tensor:
        converted = fn(tensor)
        if any(tensor is t for t in whole) and converted.dtype in (torch.half, torch.bfloat16):
            return tensor.to(converted.device, torch.float32)
        return converted

    return convert


def masked_modules(model: nn.Module) -> dict[str, MaskedWeight]:
    """The masked modules in a model, by name."""
    return {name: m for name, m in model.named_modules() if isinstance(m, MaskedWeight)}


def share_mask_cache(model: nn.Module) -> MaskCache:
    """Puts all masked modules of a model in one cache, so that equal shapes are selected in one call; call it once."""
    members = list(masked_modules(model).values())
    cache = MaskCache(members)
    for m in members:
        m.mask_cache = cache
    return cache


def nan_scores(model: nn.Module) -> list[str]:
    """Names of the score tensors that hold a NaN; waits for the device once."""
    scores = {
        f"{name}.scores".lstrip("."): m.scores for name, m in masked_modules(model).items() if m.scores is not None
    }
    if not scores:
        return []
    found = torch.stack([s.detach().isnan().any() for s in scores.values()]).tolist()
    return [name for name, has_nan in zip(scores, found) if has_nan]


def refuse_moving_masks(model: nn.Module, given: str, frozen: Collection[Tensor] | None = None) -> None:
    """What is frozen of a supermask model are scores; where masks do not follow from those alone, they would change all the same.

    Args:
        given: what freezes them, for the error.
        frozen: parameters that are frozen together at some update; by default those that are frozen now.

    Raises:
        InputError: scores are frozen, and their masks depend on other ones' scores or on the update.
    """
    every = {name: masked for name, masked in masked_modules(model).items() if masked.scores is not None}
    still = set(map(id, frozen)) if frozen is not None else {id(p) for p in model.parameters() if not p.requires_grad}
    some_move = any(id(masked.scores) not in still for masked in every.values())
    for name, masked in every.items():
        if id(masked.scores) not in still:
            continue
        why = "--mask-keep-schedule shrinks every mask" if masked.choices.keep_schedule else None
        if masked.choices.scope == "global" and some_move:
            why = "with --mask-scope global masks are chosen among all scores together"
        if why:
            raise InputError(
                f"{given}: the mask of {name} would not stay while its scores are frozen, since {why}; leave one of them out"
            )

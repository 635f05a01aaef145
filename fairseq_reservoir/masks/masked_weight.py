"""A frozen random matrix seen through a mask: what ``MaskedLinear`` and ``MaskedEmbedding`` have in common."""

import math

import torch
from torch import Tensor, nn

from ..random_tensors import initialisers, philox
from .mask_cache import MaskCache
from .mask_choices import MaskChoices
from .pinned_mask import draw_pinned, pinned_per_row
from .topk_mask import StraightThrough

INITIALISERS = ("kaiming_uniform", "kaiming_normal", "xavier_uniform", "xavier_normal", "signed_constant")


class MaskedWeight(nn.Module):
    """W' = W * M with W random and never trained, M a mask of learned scores S; W, M: (rows, columns).

    Trained: ``scores``, parameter, float32 also after half() and bfloat16(), (rows, columns) less the pinned entries;
    None if the mask is random. Frozen: ``frozen_weight``, buffer. The gradient of S is that of W', times W, times sign(S)
    where magnitudes rank an unsigned mask. It reaches the entries that the mask leaves out, which is how they come back
    (Ramanujan et al., 2020).

    S starts as U(-1/sqrt(columns), 1/sqrt(columns)). W is drawn by ``init``, whose fan_in is ``columns``, and multiplied
    by ``gain``. Both depend on the seed and the name only. Without a seed, one is drawn from torch's generator.

    Args:
        rows, columns: shape of W.
        keep_ratio, choices: see ``MaskChoices``; ``choices`` are its other fields by name.
        init: one of ``INITIALISERS``.
        gain: multiplies W; by default sqrt(1 / keep_ratio), see ``MaskChoices.gain``.
        seed, name: what all random tensors depend on.
        shared: a module and the name of its buffer to use as W. The module is not registered here: whoever owns it
            registers it once, and W stays one storage, stored once, through half(), to(), deepcopy and load_state_dict.

    Raises:
        ValueError: for an unknown init, choices that ``MaskChoices`` refuses, a shared buffer of another shape, or a pinned
            or random mask without a seed (such a mask is not stored, but drawn again).
    """

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
        shared: tuple[nn.Module, str] | None = None,
        **choices,
    ):
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
        if shared is None:
            self.register_buffer("frozen_weight", random_weight(self.weight_shape, self.choices, init, gain, seed, name))
        elif self.frozen_weight.shape != self.weight_shape:
            raise ValueError(f"shared {shared[1]} {tuple(self.frozen_weight.shape)}: must be {tuple(self.weight_shape)}")
        learned = columns - pinned_per_row(columns, self.choices)
        pinned = learned_columns = None
        self.pinned_counts = [0] * len(self.choices.keep_ratios)
        if learned < columns:
            pinned, learned_columns, self.pinned_counts = draw_pinned(self.weight_shape, self.choices, seed, name)
        self.register_buffer("pinned", pinned, persistent=False)
        self.register_buffer("learned", learned_columns, persistent=False)
        self.register_parameter("scores", None)
        if learned:
            bound = 1 / math.sqrt(columns)
            self.scores = nn.Parameter(philox.uniform(seed, f"{name}.scores", (rows, learned), bound))
        if self.choices.keep_schedule:
            self.register_buffer("num_updates", torch.zeros((), dtype=torch.int64))
        self._scheduled_update = 0

    def __getattr__(self, name):
        if name == "frozen_weight" and self.__dict__.get("_owner"):
            return getattr(self._owner[0], self._owner_buffer)
        return super().__getattr__(name)

    @property
    def weight(self) -> Tensor:
        """The masked weight (rows, columns), in the type of the frozen one and differentiable in the scores."""
        weight = self.mask_cache.get(self)[1]
        if self.scores is None or not torch.is_grad_enabled():
            return weight
        follow_sign = self.choices.ranking == "magnitude" and self.choices.kind == "binary"
        return StraightThrough.apply(self.scores, weight, self.frozen_weight, follow_sign, self.learned)

    @property
    def mask(self) -> Tensor:
        """The mask in use: bool, or int8 if it is signed or has several coats."""
        return self.mask_cache.get(self)[0]

    @property
    def keep_ratios(self) -> tuple:
        """The ratio of each coat at present."""
        return self.choices.keep_ratios_at(self._scheduled_update)

    @property
    def device(self) -> torch.device:
        return self.frozen_weight.device

    def with_pinned(self, mask: Tensor | None) -> Tensor:
        """The whole mask, from that of the scores."""
        if self.pinned is None or mask is None:
            return mask if self.pinned is None else self.pinned
        return self.pinned.scatter(1, self.learned, mask)

    def apply_mask(self, mask: Tensor) -> Tensor:
        return mask.to(self.frozen_weight.dtype).mul_(self.frozen_weight)

    def set_num_updates(self, num_updates: int) -> None:
        """fairseq calls this on every module before every batch; it is what lets masks be reused in training."""
        if self.choices.keep_schedule and num_updates != self._scheduled_update:
            self.num_updates.fill_(num_updates)
            self._scheduled_update = num_updates
        self.mask_cache.set_num_updates(num_updates)

    def train(self, mode: bool = True):
        if mode != self.training:
            self.mask_cache.forget(self)
        return super().train(mode)

    def _apply(self, fn, recurse=True):
        """Conversions, such as half() and to(): the scores follow to the device, but never below 32 bits."""
        self.mask_cache.forget(self)
        scores = [] if self.scores is None else [t for t in (self.scores, self.scores.grad) if t is not None]

        def convert(tensor):
            converted = fn(tensor)
            if any(tensor is s for s in scores) and converted.dtype in (torch.half, torch.bfloat16):
                return tensor.to(converted.device, torch.float32)
            return converted

        return super()._apply(convert, recurse)

    def _load_from_state_dict(self, *args, **kwargs):
        super()._load_from_state_dict(*args, **kwargs)
        self.mask_cache.forget(self)
        if self.choices.keep_schedule:
            self._scheduled_update = int(self.num_updates)


def random_weight(shape, choices: MaskChoices, init: str, gain: float | None, seed: int, name: str) -> Tensor:
    """float32 W of ``shape``: the initialiser's tensor times ``gain``, by default that of the choices."""
    if init not in INITIALISERS:
        raise ValueError(f"init {init}: must be one of {', '.join(INITIALISERS)}")
    gain = torch.tensor(choices.gain if gain is None else gain, dtype=torch.float32)
    return initialisers.MATRIX_INITIALISERS[init](seed, name, tuple(shape)) * gain

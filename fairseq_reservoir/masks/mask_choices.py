"""What a mask is: how much it keeps, of what, ranked how, and which part of it is learned."""

import math
from dataclasses import dataclass
from fractions import Fraction

from .topk_mask import RANKINGS, SCOPES, check_ratios

KINDS = ("binary", "signed")


@dataclass(frozen=True)
class MaskChoices:
    """The choices of one masked tensor.

    Attributes:
        keep_ratio: share of the weights kept.
        coats: further, smaller keep ratios in descending order; the masks of all ratios are nested and summed, so that a
            weight counts once for every ratio that keeps it (Okoshi et al., 2022).
        scope: the ratio is of each ``tensor``, each ``row``, or all ``global`` tensors of one mask cache together.
        ranking: by ``magnitude`` of the score, or by its ``value``.
        kind: ``binary``, or ``signed``: a kept weight takes the sign of its score too (Koster et al., 2022).
        pin: share of each row's mask entries fixed at random from the start; they have no score (Otsuka et al., 2024).
        random: the control: the whole mask is fixed at random, and there are no scores.
        keep_schedule: points (update, ratio), from (0, 1) over them in straight lines; the last ratio is ``keep_ratio``.

    Raises:
        ValueError: for a value that is not one of these.
    """

    keep_ratio: float = 0.5
    coats: tuple[float, ...] = ()
    scope: str = "tensor"
    ranking: str = "magnitude"
    kind: str = "binary"
    pin: float = 0.0
    random: bool = False
    keep_schedule: tuple[tuple[int, float], ...] = ()

    def __post_init__(self):
        object.__setattr__(self, "coats", tuple(self.coats))
        object.__setattr__(self, "keep_schedule", tuple(map(tuple, self.keep_schedule)))
        for field, allowed in (("scope", SCOPES), ("ranking", RANKINGS), ("kind", KINDS)):
            if getattr(self, field) not in allowed:
                raise ValueError(f"{field} {getattr(self, field)}: must be one of {', '.join(allowed)}")
        if self.kind == "signed" and self.ranking == "value":
            raise ValueError("kind signed: needs ranking magnitude, since the sign of a score becomes the mask's")
        if not 0 <= self.pin < 1:
            raise ValueError(f"pin {self.pin}: must be at least 0 and less than 1; random fixes the whole mask")
        check_ratios(self.keep_ratios)
        self._check_schedule()

    def _check_schedule(self):
        points = [(0, 1), *self.keep_schedule]
        for (update, ratio), (next_update, next_ratio) in zip(points, points[1:]):
            check_ratios(next_ratio)
            if next_update <= update or _exact(next_ratio) > _exact(ratio):
                raise ValueError(f"keep schedule {self.keep_schedule}: updates must rise from 0, ratios must not")
        if self.keep_schedule and _exact(points[-1][1]) != _exact(self.keep_ratio):
            raise ValueError(f"keep schedule {self.keep_schedule}: must end at the keep ratio {self.keep_ratio}")

    @property
    def keep_ratios(self) -> tuple:
        """The ratio of each coat, the largest first, as the schedule leaves them."""
        return (self.keep_ratio, *self.coats)

    def keep_ratios_at(self, update: int) -> tuple:
        """The ratio of each coat at an update: the schedule moves that of the first coat only."""
        start, ratio = 0, Fraction(1)
        for end, target in self.keep_schedule:
            if update < end:
                step = Fraction(max(update, start) - start, end - start)
                return (ratio + step * (_exact(target) - ratio), *self.coats)
            start, ratio = end, _exact(target)
        return self.keep_ratios

    @property
    def gain(self) -> float:
        """1 / sqrt(E[m^2]) for a mask entry m, which is sqrt(1 / keep_ratio) for one coat.

        The weights times this keep the variance of W x whatever the mask keeps. With ratios k_1 > k_2 > ..., m is j or
        more on a share k_j of the entries, hence E[m^2] = sum_j (j^2 - (j-1)^2) k_j = sum_j (2j - 1) k_j.
        """
        return 1 / math.sqrt(sum((2 * j + 1) * _exact(ratio) for j, ratio in enumerate(self.keep_ratios)))

    @property
    def lowest(self) -> int:
        """The smallest entry of a mask of c coats, which has the entries 0 to c, or -c to c if it is signed."""
        return -len(self.keep_ratios) if self.kind == "signed" else 0

    @property
    def bits(self) -> int:
        """Bits that hold an entry less the smallest one."""
        return (len(self.keep_ratios) - self.lowest).bit_length()


def _exact(ratio):
    return Fraction(str(ratio))

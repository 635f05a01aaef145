"""The settings of a mask (keep ratios, scope, ranking and schedule) and their checks. Does not import torch."""

import math
from dataclasses import dataclass
from fractions import Fraction

Ratio = float | Fraction

SCOPES = ("tensor", "row", "global")
RANKINGS = ("magnitude", "value")
MASK_KINDS = ("binary", "signed")


@dataclass(frozen=True)
class MaskChoices:
    """The settings of the mask of one tensor.

    Attributes:
        keep_ratio: share of the weights that the mask keeps.
        coats: additional keep ratios, each smaller than the one before. Each ratio has one binary mask, a coat. The coats are
            nested and summed: an entry of the sum is the number of coats that keep the weight (multicoated masks, Okoshi et al.,
            2022).
        scope: the unit to which the ratio applies: each ``tensor``, each ``row``, or all masked tensors of the model together (``global``).
            With ``global``, each tensor keeps at least a tenth of its share, rounded down, because a tensor without kept weights would pass
            no gradient to the tensors below.
        ranking: rank scores by ``magnitude`` or by ``value``.
        kind: ``binary`` or ``signed``. In a signed mask, a kept weight is multiplied by the sign of its score (Koster et al., 2022).
        pin: share of each row's mask entries that are fixed at random and have no scores (Otsuka et al., 2024).
        random: the whole mask is fixed at random and has no scores. Random masks are the baseline of learned masks.
        keep_schedule: points (update, ratio). The ratio is interpolated linearly from (0, 1) through all points. The last
            ratio must be ``keep_ratio``.

    Raises:
        ValueError: a value is not allowed.
    """

    keep_ratio: float = 0.5
    coats: tuple[float, ...] = ()
    scope: str = "tensor"
    ranking: str = "magnitude"
    kind: str = "binary"
    pin: float = 0.0
    random: bool = False
    keep_schedule: tuple[tuple[int, float], ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "coats", tuple(self.coats))
        object.__setattr__(self, "keep_schedule", tuple(map(tuple, self.keep_schedule)))
        for field, allowed in (("scope", SCOPES), ("ranking", RANKINGS), ("kind", MASK_KINDS)):
            if getattr(self, field) not in allowed:
                raise ValueError(f"{field} {getattr(self, field)}: must be one of {', '.join(allowed)}")
        if self.kind == "signed" and self.ranking == "value":
            raise ValueError("kind signed: needs ranking magnitude, because the mask entry has the sign of the score")
        if not 0 <= self.pin < 1:
            raise ValueError(
                f"pin {self.pin}: must be at least 0 and less than 1; use random (--mask-random) for a mask that never changes"
            )
        _check_ratios(*self.keep_ratios)
        self._check_schedule()

    def _check_schedule(self) -> None:
        points = [(0, 1), *self.keep_schedule]
        for (update, ratio), (next_update, next_ratio) in zip(points, points[1:]):
            _check_ratios(next_ratio)
            if next_update <= update or _exact(next_ratio) > _exact(ratio):
                raise ValueError(
                    f"keep schedule {self.keep_schedule}: updates must be above 0 and increase, and ratios must not increase"
                )
        if self.keep_schedule and _exact(points[-1][1]) != _exact(self.keep_ratio):
            raise ValueError(f"keep schedule {self.keep_schedule}: must end at the keep ratio {self.keep_ratio}")

    @property
    def keep_ratios(self) -> tuple[float, ...]:
        """Keep ratio of each coat at the end of the schedule, in descending order."""
        return (self.keep_ratio, *self.coats)

    def keep_ratios_at(self, update: int) -> tuple[Ratio, ...]:
        """Keep ratio of each coat at an update. The schedule changes only the ratio of the first coat."""
        start, ratio = 0, Fraction(1)
        for end, target in self.keep_schedule:
            if update < end:
                step = Fraction(max(update, start) - start, end - start)
                return (ratio + step * (_exact(target) - ratio), *self.coats)
            start, ratio = end, _exact(target)
        return self.keep_ratios

    @property
    def gain(self) -> float:
        """Factor of the weights, 1 / sqrt(E[m^2]) for a mask entry m. With one coat the factor is sqrt(1 / keep_ratio).

        The factor makes the variance of the product W x with the masked weights W independent of the keep ratio. With ratios
        k_1 > k_2 > ..., a share k_j of the mask entries has |m| >= j. It follows that
        E[m^2] = sum_j (j^2 - (j-1)^2) k_j = sum_j (2j - 1) k_j.
        """
        return 1 / math.sqrt(sum((2 * j + 1) * _exact(ratio) for j, ratio in enumerate(self.keep_ratios)))

    @property
    def lowest(self) -> int:
        """The smallest mask entry. A mask of c coats has entries 0 to c, or -c to c if it is signed."""
        return -len(self.keep_ratios) if self.kind == "signed" else 0

    @property
    def bits(self) -> int:
        """Number of bits that encode a mask entry."""
        return (len(self.keep_ratios) - self.lowest).bit_length()


def keep_count(keep_ratio: Ratio | str, n: int) -> int:
    """Return the number of kept entries out of ``n``: ``max(1, floor(keep_ratio * n + 1/2))``, with 0.1 as exactly 1/10.

    Raises:
        ValueError: the ratio is outside (0, 1].
    """
    try:
        ratio = Fraction(str(keep_ratio))
    except ValueError:
        ratio = Fraction(0)
    if not 0 < ratio <= 1:
        raise ValueError(f"keep ratio {keep_ratio}: must be a number greater than 0 and at most 1")
    return max(1, math.floor(ratio * n + Fraction(1, 2)))


def _check_ratios(*ratios: Ratio) -> None:
    """Raise ValueError unless all ratios are in (0, 1] and descend strictly."""
    for ratio in ratios:
        keep_count(ratio, 1)
    if any(_exact(a) <= _exact(b) for a, b in zip(ratios, ratios[1:])):
        raise ValueError(
            f"keep ratios {list(ratios)}: each ratio must be smaller than the ratio before it, and the first coat's ratio must be smaller "
            "than the keep ratio"
        )


def _exact(ratio: Ratio) -> Fraction:
    return Fraction(str(ratio))

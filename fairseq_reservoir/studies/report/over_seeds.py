"""Differences of arms from the baseline over seeds, by Welch's t-test: whether other seeds would show them, too."""

import math
from collections.abc import Callable
from dataclasses import dataclass

from .arms import Arm, deviation, mean
from .cells import EMPTY, name_cell, p_cell, score_digits, sources
from .measures import Study
from .runs import Run
from .tables import Cell, Table


@dataclass(frozen=True)
class Difference:
    """``value`` of means, its 95 % interval ``value`` ± ``interval``, and p; both None if no two seeds of an arm differ.

    p: how often chance alone would make a difference as large, if there were none. ``counts``: values on either side.
    """

    value: float
    interval: float | None
    p: float | None
    counts: tuple[int, int]


def difference(ours: list[float], theirs: list[float]) -> Difference | None:
    """Of the mean of ``ours`` from that of ``theirs``, by Welch's t-test, two-sided; None unless both have two values or more.

    The interval is t₀.₉₇₅(ν) √(s₁²/n₁ + s₂²/n₂) with Welch and Satterthwaite's
    ν = (s₁²/n₁ + s₂²/n₂)² / (s₁⁴/(n₁² (n₁ - 1)) + s₂⁴/(n₂² (n₂ - 1))): the two deviations need not be equal.
    """
    if min(len(ours), len(theirs)) < 2:
        return None
    value = mean(ours) - mean(theirs)
    counts = len(ours), len(theirs)
    errors = [(deviation(values) or 0.0) ** 2 / len(values) for values in (ours, theirs)]
    error = math.sqrt(sum(errors))
    if not error:
        return Difference(value, None, None, counts)
    shares = [one / sum(errors) for one in errors]  # of which powers are no more than 1
    degrees = 1 / sum(share**2 / (len(values) - 1) for share, values in zip(shares, (ours, theirs)))
    from scipy.special import stdtr, stdtrit  # Student's distribution and its inverse

    p = 2 * float(stdtr(degrees, -abs(value) / error))
    return Difference(value, float(stdtrit(degrees, 0.975)) * error, p, counts)


@dataclass(frozen=True)
class Score:
    """A score of runs; ``of`` gives a run's, None where it has none that can be compared with the baseline's."""

    label: str
    digits: int
    higher: bool
    of: Callable[[Run], float | None]

    def values(self, arm: Arm) -> list[float]:
        """Those of the arm's seeds that have one, interrupted runs left out."""
        return [value for value in map(self.of, arm.counted) if value is not None and math.isfinite(value)]

    def differences(self, study: Study) -> dict[str, Difference | None]:
        """Of every other arm from the baseline, by the arm's name."""
        theirs = self.values(study.baseline)
        others = [arm for arm in study.arms if arm is not study.baseline]
        return {arm.name: difference(self.values(arm), theirs) for arm in others}


def scores(study: Study) -> list[Score]:
    """The metric; test sacreBLEU and chrF of the runs with the baseline's references, and test loss, if the baseline has them."""
    metric = study.metric
    found = [Score(metric.label, score_digits(study), metric.higher, lambda run: study.measured[run.name].best)]
    tests = [study.tests[run.name] for run in study.baseline.counted]
    references = next((test.counts.references for test in tests if test.bleu is not None), None)

    def tested(score):
        def of(run):
            test = study.tests[run.name]
            return getattr(test, score) if test.bleu is not None and test.counts.references == references else None

        return of

    if references is not None:
        found += [Score("test sacreBLEU", 2, True, tested("bleu")), Score("test chrF", 2, True, tested("chrf"))]
    if any(test.bits is not None for test in tests):
        found.append(Score("test loss (bits)", 4, False, lambda run: study.tests[run.name].bits))
    return found


def over_seeds(study: Study) -> Table | None:
    """The table, None if no arm has two seeds beside two of the baseline."""
    compared = [(score, score.differences(study)) for score in scores(study)]
    rows = []
    for arm in study.arms:
        found = [differences.get(arm.name) for _, differences in compared]
        if any(found):
            counts = dict.fromkeys(f"{one.counts[0]} and {one.counts[1]}" for one in found if one)
            row = [name_cell(arm), Cell("; ".join(counts))]
            for one, (score, _) in zip(found, compared):
                row += difference_cells(one, score.digits, sources(arm))
            rows.append(row)
    if not rows:
        return None
    head = ["arm", "seeds"]
    for score, _ in compared:
        head += [f"{score.label}: difference", f"{score.label}: 95 % ±", f"{score.label}: p"]
    notes = [
        "Welch's t-test over seeds, two-sided: a difference whose interval holds 0 may be chance. p: how often chance alone would make one"
        " as large. Of twenty such p without any true difference one is expected below 0.05, so name beforehand what is compared."
    ]
    return Table("over_seeds", f"Differences from {study.baseline.name}, over seeds", head, rows, notes)


def difference_cells(one: Difference | None, digits: int, where: str) -> list[Cell]:
    """Difference, interval and p; ``where`` names the logs."""
    if one is None:
        return [EMPTY] * 3
    cells = [Cell(f"{one.value:+.{digits}f}", one.value, source=where)]
    if one.interval is None or one.p is None:
        return [*cells, EMPTY, EMPTY]
    return [*cells, Cell(f"{one.interval:.{digits}f}", one.interval, source=where), p_cell(one.p, where)]

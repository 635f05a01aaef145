"""Differences of arms from the baseline over seeds, by Welch's t-test: whether other seeds would show them, too."""

import math
from dataclasses import dataclass

from .arms import Arm, deviation, mean
from .cells import EMPTY, name_cell, score_digits, sources
from .measures import Study
from .tables import Cell, Table


@dataclass(frozen=True)
class Difference:
    """``value`` of means; its 95 % interval is ``value`` ± ``interval``, and p that of no difference: None if no two seeds differ."""

    value: float
    interval: float | None
    p: float | None


def difference(ours: list[float], theirs: list[float]) -> Difference | None:
    """Of the mean of ``ours`` from that of ``theirs``, by Welch's t-test, two-sided; None unless both have two values or more.

    The interval is t₀.₉₇₅(ν) √(s₁²/n₁ + s₂²/n₂) with Welch and Satterthwaite's
    ν = (s₁²/n₁ + s₂²/n₂)² / (s₁⁴/(n₁² (n₁ - 1)) + s₂⁴/(n₂² (n₂ - 1))): the two deviations need not be equal.
    """
    if min(len(ours), len(theirs)) < 2:
        return None
    value = mean(ours) - mean(theirs)
    errors = [(deviation(values) or 0.0) ** 2 / len(values) for values in (ours, theirs)]
    error = math.sqrt(sum(errors))
    if not error:
        return Difference(value, None, None)
    degrees = sum(errors) ** 2 / sum(one**2 / (len(values) - 1) for one, values in zip(errors, (ours, theirs)))
    from scipy.special import stdtr, stdtrit  # Student's distribution and its inverse

    return Difference(value, float(stdtrit(degrees, 0.975)) * error, 2 * float(stdtr(degrees, -abs(value) / error)))


def over_seeds(study: Study) -> Table | None:
    """The table, None if no arm has two seeds beside two of the baseline."""
    measures = [(study.metric.label, score_digits(study), lambda run: study.measured[run.name].best)]
    if any(test.bleu is not None for test in study.tests.values()):
        measures.append(("test sacreBLEU", 2, lambda run: study.tests[run.name].bleu))
    rows = []
    for arm in study.arms:
        if arm is study.baseline:
            continue
        found = [difference(_values(arm, of), _values(study.baseline, of)) for _, _, of in measures]
        if any(found):
            row = [name_cell(arm), Cell(f"{len(arm.counted)} and {len(study.baseline.counted)}")]
            for one, (_, digits, _) in zip(found, measures):
                row += _cells(one, digits, arm)
            rows.append(row)
    if not rows:
        return None
    head = ["arm", "seeds"]
    for label, _, _ in measures:
        head += [f"{label}: difference", f"{label}: 95 % ±", f"{label}: p"]
    notes = [
        "Welch's t-test over seeds, two-sided: a difference whose interval holds 0 may be chance. Each row stands alone; of twenty rows"
        " without any difference one is expected below p = 0.05."
    ]
    return Table("over_seeds", f"Differences from {study.baseline.name}, over seeds", head, rows, notes)


def _values(arm: Arm, of) -> list[float]:
    return [value for value in map(of, arm.counted) if value is not None and math.isfinite(value)]


def _cells(one: Difference | None, digits: int, arm: Arm) -> list[Cell]:
    if one is None:
        return [EMPTY] * 3
    where = sources(arm)
    cells = [Cell(f"{one.value:+.{digits}f}", one.value, source=where)]
    if one.interval is None or one.p is None:
        return [*cells, EMPTY, EMPTY]
    return [
        *cells,
        Cell(f"{one.interval:.{digits}f}", one.interval, source=where),
        Cell(f"{one.p:.4f}", one.p, source=where),
    ]

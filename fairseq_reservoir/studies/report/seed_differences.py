"""Differences between each arm and the baseline, tested over seeds with Welch's t-test."""

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass

from ...errors import optional_package
from .arms import Arm, mean
from .cells import EMPTY, fixed, name_cell, p_cell, signed, sources
from .measures import Study
from .runs import Run
from .tables import Cell, Table


@dataclass(frozen=True)
class Difference:
    """Difference of two means.

    Attributes:
        value: the difference.
        interval: half the width of the 95 % confidence interval; None if the values of each arm are all equal.
        p: p-value, the probability of a difference at least this large if the true means are equal; None if ``interval`` is None.
        counts: number of seeds of each of the two arms.
    """

    value: float
    interval: float | None
    p: float | None
    counts: tuple[int, int]


def difference(ours: list[float], theirs: list[float]) -> Difference | None:
    """Compare two means by Welch's two-sided t-test, which allows unequal variances.

    Returns:
        The mean of ``ours`` minus the mean of ``theirs``; None if a list has fewer than two values.

    Raises:
        InputError: scipy is not installed.
    """
    if min(len(ours), len(theirs)) < 2:
        return None
    value, counts = mean(ours) - mean(theirs), (len(ours), len(theirs))
    if len(set(ours)) == len(set(theirs)) == 1:
        return Difference(value, None, None, counts)
    ttest_ind = optional_package("scipy", "t-tests over seeds need").stats.ttest_ind  # takes a second to import

    scale = max(map(abs, [*ours, *theirs]))  # keeps the fourth powers of very large scores finite
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # scipy warns about equal values in one of the arms
        test = ttest_ind([x / scale for x in ours], [x / scale for x in theirs], equal_var=False)
        low, high = test.confidence_interval()
    return Difference(value, float(high - low) / 2 * scale, float(test.pvalue), counts)


@dataclass(frozen=True)
class Score:
    """A score by which arms are compared.

    Attributes:
        label: name in tables and figures, with the unit.
        noun: name in sentences.
        unit: unit of the score; "" if it has no unit.
        digits: number of decimals in tables.
        higher: whether higher is better.
        read: function from a run to its score. The function returns None if the run has no score, or was tested on a different test set
            than the baseline.
    """

    label: str
    noun: str
    unit: str
    digits: int
    higher: bool
    read: Callable[[Run], float | None]

    def values(self, arm: Arm) -> list[float]:
        """Return the finite scores of the runs in ``Arm.counted``."""
        return [value for value in map(self.read, arm.counted) if value is not None and math.isfinite(value)]

    def differences(self, study: Study) -> dict[str, Difference | None]:
        """Return a dictionary from the name of each arm, except the baseline, to the arm's difference from the baseline."""
        theirs = self.values(study.baseline)
        others = [arm for arm in study.arms if arm is not study.baseline]
        return {arm.name: difference(self.values(arm), theirs) for arm in others}


def scores(study: Study) -> list[Score]:
    """Return the scores to compare: the metric, and the test scores that the baseline has.

    sacreBLEU and chrF are compared only for runs that were scored against the baseline's references.
    """
    metric = study.metric
    found = [
        Score(
            metric.label,
            metric.noun,
            metric.unit,
            metric.digits,
            metric.higher,
            lambda run: study.measured[run.name].best,
        )
    ]
    tests = [study.tests[run.name] for run in study.baseline.counted]
    references = next((test.counts.references for test in tests if test.bleu is not None), None)

    def read_test_score(name):
        def read(run):
            test = study.tests[run.name]
            return getattr(test, name) if test.bleu is not None and test.counts.references == references else None

        return read

    if references is not None:
        found.append(Score("test sacreBLEU", "test sacreBLEU", "", 2, True, read_test_score("bleu")))
        found.append(Score("test chrF", "test chrF", "", 2, True, read_test_score("chrf")))
    if any(test.bits is not None for test in tests):
        found.append(Score("test loss (bits)", "test loss", "bits", 4, False, lambda run: study.tests[run.name].bits))
    return found


def seed_differences(study: Study) -> Table | None:
    """Build the table of differences. It needs at least two seeds of the baseline and of another arm; otherwise return None."""
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
    head, groups = ["arm", "seeds"], ["", ""]
    for score, _ in compared:
        head += ["difference", "95 % ±", "p"]
        groups += [score.label] * 3
    notes = [
        "Two-sided Welch's t-test over seeds. A difference is not significant if its interval contains 0. p is the probability that chance"
        " alone causes a difference at least this large. Even without any true difference, one p in twenty is below 0.05. Therefore choose"
        " the comparisons before the runs, and name them with --compare."
    ]
    return Table("over_seeds", f"Differences from {study.baseline.name}, over seeds", head, rows, notes, groups)


def difference_cells(one: Difference | None, digits: int, where: str) -> list[Cell]:
    """Return three cells: difference, interval and p. ``where`` has the paths of the logs from which the numbers were computed."""
    if one is None:
        return [EMPTY] * 3
    cells = [Cell(signed(one.value, digits), one.value, source=where)]
    if one.interval is None or one.p is None:
        return [*cells, EMPTY, EMPTY]
    return [*cells, Cell(fixed(one.interval, digits), one.interval, source=where), p_cell(one.p, where)]

"""Scores as a function of the flag that ``--against`` names: one point per arm, one series per group of arms."""

import re
from dataclasses import dataclass

from .cells import cell, score_digits
from .configuration import alike, experiment
from .measures import Spread, Study, spread
from .tables import Cell, Table


@dataclass(frozen=True)
class Point:
    """One arm: its value of the flag that ``--against`` names, and its scores.

    Attributes:
        series: name of the arm's series. Arms that differ only in this flag form a series, which has the name of its first arm.
        arm: name of the arm.
        value: the arm's value of the flag.
        best: best validation score, over seeds.
        test: sacreBLEU on the test set, over seeds.
        source: log file of the arm's first run.
    """

    series: str
    arm: str
    value: object
    best: Spread
    test: Spread
    source: str


def points(study: Study) -> list[Point]:
    """Return one point per arm, ordered by series and then by value."""
    series: list[tuple[str, dict]] = []
    found, against = [], study.against or ""
    for arm in study.arms:
        run = arm.runs[0]
        rest = experiment(run.configuration, (against, *study.ignored))
        name = next((name for name, others in series if alike(rest, others)), arm.name)
        series.append((name, rest))
        best = spread([one.best for one in study.measured_runs(arm)])
        test = spread([study.tests[run.name].bleu for run in arm.counted])
        found.append(Point(name, arm.name, _unlisted(run.configuration.get(against)), best, test, str(run.log_file)))
    names = [name for name, _ in series]
    return sorted(found, key=lambda point: (names.index(point.series), _order(point.value)))


def _unlisted(value):
    """Convert a text such as "[0.001]" to its number, because fairseq logs --lr and --update-freq as lists. Keep other values."""
    listed = re.fullmatch(r"\[([\d.]{1,20}(?:e[-+]?\d{1,3})?)\]", value) if isinstance(value, str) else None
    return float(listed[1]) if listed else value


def _order(value):
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return (0, value, "") if number else (1, 0, str(value))


def against_table(study: Study) -> Table:
    """Build the table of ``--against``."""
    arms = {arm.name: arm for arm in study.arms}
    leaf = (study.against or "").rpartition(".")[2]
    rows, tested = [], any(test.bleu is not None for test in study.tests.values())
    for point in points(study):
        number = point.value if isinstance(point.value, (int, float)) and not isinstance(point.value, bool) else None
        row = [
            Cell(point.arm, source=point.source),
            Cell(str(point.value), number, source=point.source),
            Cell(point.series),
        ]
        row.append(cell(point.best, score_digits(study), arms[point.arm]))
        rows.append(row + [cell(point.test, 2, arms[point.arm])] * tested)
    head = ["arm", leaf, "series", f"best {study.metric.label}"] + ["test sacreBLEU"] * tested
    notes = ["The arms of one series differ only in this flag, in seeds and in paths."]
    return Table("against", f"Score against {leaf}", head, rows, notes)

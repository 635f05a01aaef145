"""Scores and times as a function of the flag that ``--against`` names: one point per arm, one series per group of arms."""

from dataclasses import dataclass

from .arms import Arm, bare, series_of
from .cells import EMPTY, cell, fixed, sources, value_cell
from .configuration import experiment, in_order, same, setting
from .measures import Spread, Study, ratio, spread
from .tables import Cell, Table

_LONGEST = 36  # most characters of flags that name a series in a legend


@dataclass(frozen=True)
class Point:
    """One arm: its value of the flag that ``--against`` names, and its scores.

    Attributes:
        series: name of the arm's series. See ``_series``.
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
    key = study.against or ""
    keys = (key, *([study.search.key] if study.search else []), *study.ignored)
    found, series = [], _series(study.arms, keys)
    for arms, name in zip(series, _names(series, keys)):
        values = {arm.name: setting(arm.runs[0].configuration, key) for arm in arms}
        for arm in sorted(arms, key=lambda arm: in_order(values[arm.name])):
            best = spread([one.best for one in study.measured_runs(arm)])
            test = spread([study.tests[run.name].bleu for run in arm.counted])
            found.append(Point(name, arm.name, values[arm.name], best, test, str(arm.runs[0].log_file)))
    return found


def _series(arms, keys):
    """Group arms that differ only in the ``keys``.

    Also group arms with names such as 3-deep and 6-deep, which differ only in the value of the first key.
    """
    found = series_of(arms, keys)
    joined: dict[str, list[Arm]] = {}
    for number, members in enumerate(found):
        runs = [arm.runs[0] for arm in members]
        names = {bare(run, keys) for run in runs}
        has_values = all(bare(run, keys[:1]) != run.stem for run in runs)
        joined.setdefault(names.pop() if len(names) == 1 and has_values else f"{number}/", []).extend(members)
    return list(joined.values())


def _names(series, keys):
    """Return a name for each series: the name that its arms share after the flag's value is removed, such as "deep" for 3-deep and 6-deep.

    If the arms share no such name, or if another series has the same name, the series is named after the flags that distinguish it, as in
    "encoder_layers 6, dropout 0.1". A flag distinguishes a series if another series has a different value of this flag. If there is no such
    flag, the series gets the name of its first arm.
    """
    shorts = [{bare(run, keys) for arm in arms for run in arm.runs} for arms in series]
    settings = [experiment(arms[0].runs[0].configuration, keys) for arms in series]
    found = []
    for arms, names, ours in zip(series, shorts, settings):
        if len(names) == 1 and sum(names == others for others in shorts) == 1:
            found.append(next(iter(names)))
            continue
        differing = {
            key for key in ours if any(key in theirs and not same(ours[key], theirs[key]) for theirs in settings)
        }
        leaves = dict.fromkeys(f"{key.rpartition('.')[2]} {setting(ours, key)}" for key in ours if key in differing)
        named = ", ".join(leaves)
        found.append(named if 0 < len(named) <= _LONGEST else arms[0].name)
    return found if len(set(found)) == len(found) else [arms[0].name for arms in series]


def against_table(study: Study) -> Table:
    """Build the table of scores, and of times to the best score, against the flag that ``--against`` names."""
    arms, digits = {arm.name: arm for arm in study.arms}, study.metric.digits
    leaf = (study.against or "").rpartition(".")[2]
    placed, tested = points(study), any(test.bleu is not None for test in study.tests.values())
    partners = _partners(study, placed, leaf)
    rows = []
    for point in placed:
        arm = arms[point.arm]
        row = [Cell(point.arm, source=point.source), value_cell(point.value, point.source), Cell(point.series)]
        row.append(cell(point.best, digits, arm))
        row += [cell(point.test, 2, arm)] * tested
        minutes = spread([one.to_best["seconds"] / 60 for one in study.measured_runs(arm)])
        row += [cell(minutes, 2, arm), *(_time_ratio(study, arm, found.get(point.arm)) for found in partners.values())]
        rows.append(row)
    head = ["arm", leaf, "series", f"best {study.metric.label}"] + ["test sacreBLEU"] * tested
    groups = [""] * len(head) + ["to the best score"] * (1 + len(partners))
    notes = [
        "Two arms belong to one series if their options differ only in this flag, in seeds and in paths. They also belong to one series if"
        " their names differ only in this flag's value."
    ]
    if partners:
        own = next(point.series for point in placed if point.arm == study.baseline.name)
        notes.append(
            f"Time × is a ratio of mean training times to the best score: the time of an arm, divided by the time of an arm of the"
            f" baseline's series ({own})."
            f" Both arms have the same {leaf} or the same number of trained parameters."
            " A ratio is missing if the series has no such arm, or several."
        )
    return Table("against", f"Score against {leaf}", [*head, "minutes", *partners], rows, notes, groups)


def _partners(study, placed, leaf):
    """For each column of time ratios, return a dictionary from an arm's name to its partner, an arm of the baseline's series.

    A ratio is the time of the arm, divided by the time of its partner.
    One column compares arms with the same value of the flag. Another column compares arms with the same number of trained parameters. A
    column is left out if it would only compare arms of the baseline's series with themselves.
    """
    trained = {arm.name: arm.runs[0].log.trained for arm in study.arms}
    own = next(point.series for point in placed if point.arm == study.baseline.name)
    baseline = [point.arm for point in placed if point.series == own]
    values = {point.arm: point.value for point in placed}
    columns = {}
    for title, amounts in ((f"time ×, same {leaf}", values), ("time ×, same trained parameters", trained)):
        found = {}
        for name, amount in amounts.items():
            equal = [other for other in baseline if amount is not None and same(amounts[other], amount)]
            if len(equal) == 1:
                found[name] = next(arm for arm in study.arms if arm.name == equal[0])
        if any(name not in baseline for name in found):
            columns[title] = found
    return columns


def _time_ratio(study, arm, partner):
    found = ratio(study, arm, "to_best", partner) if partner else None
    return Cell(fixed(found[2], 3), found[2], source=sources(arm)) if found else EMPTY

"""Numbers of each run in a report: curves over four axes, best score, target, AUCC. Target and horizon are common to all arms."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from . import curves
from .arms import Arm, deviation, mean
from .bootstrap import Pair
from .metrics import Metric
from .options import ReportOptions
from .runs import Run
from .translations import Test


@dataclass(frozen=True)
class Axis:
    """An axis of cost. One ``unit`` is ``scale`` base units (seconds, updates, tokens, FLOPs)."""

    key: str
    unit: str
    scale: float


AXES = (
    Axis("seconds", "hours", 3600.0),
    Axis("updates", "thousand updates", 1e3),
    Axis("tokens", "million tokens", 1e6),
    Axis("flops", "PFLOP", 1e15),
)


@dataclass(frozen=True)
class Measured:
    """The numbers of one run. Dictionaries have a key for each axis that its log has.

    Attributes:
        run: the run.
        curves: points (cost, score) of its validations.
        best: the best score.
        to_best: cost of the best score.
        to_target: cost of the common target; None if the run does not reach it.
        aucc: area under the curve up to the common horizon.
    """

    run: Run
    curves: dict[str, list]
    best: float
    to_best: dict[str, float]
    to_target: dict[str, float | None] = field(default_factory=dict)
    aucc: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class OtherFile:
    """A file in the figure of sizes that belongs to no run, such as another program's model."""

    name: str
    bytes: int
    bleu: float


@dataclass(frozen=True)
class Study:
    """All data behind the tables, the figures and the page.

    Attributes:
        options: options of the report.
        metric: the score of the validations.
        arms: in the order of their first runs.
        baseline: the arm that others are compared with.
        measured: by run name, the numbers of each run.
        target: the common target.
        horizons: the common horizon of each axis.
        skipped: pairs (run, reason) of runs without a score.
        tests: by run name, the test scores.
        pairs: results of the paired bootstrap.
        against: key of the configuration of ``--against``.
        ignored: keys of the configuration of ``--ignore``.
        points: files of ``--point``.
        comparisons: pairs of arms of ``--compare``.
    """

    options: ReportOptions
    metric: Metric
    arms: list[Arm]
    baseline: Arm
    measured: dict[str, Measured]
    target: float
    horizons: dict[str, float]
    skipped: list[tuple[Run, str]]
    tests: dict[str, Test]
    pairs: list[Pair]
    against: str | None
    ignored: tuple[str, ...]
    points: list[OtherFile]
    comparisons: list[tuple[Arm, Arm]]

    def measured_runs(self, arm: Arm) -> list[Measured]:
        """Return the numbers of the arm's runs that count in its means."""
        return [self.measured[run.name] for run in arm.counted]

    @property
    def axes(self) -> list[Axis]:
        """The axes that at least one run has."""
        return [axis for axis in AXES if axis.key in self.horizons]


@dataclass(frozen=True)
class Spread:
    """Mean and standard deviation (n - 1; None for one value) over the ``count`` of ``total`` seeds that have a value."""

    mean: float | None
    deviation: float | None
    count: int
    total: int


def spread(values) -> Spread:
    there = [value for value in values if value is not None]
    if not there:
        return Spread(None, None, 0, len(values))
    return Spread(mean(there), deviation(there), len(there), len(values))


def measure_run(run: Run, metric: Metric) -> Measured:
    """Return the curves, the best score and its cost."""
    points = [(record.updates, record.values[metric.name]) for record in scored(run, metric)]
    costs: dict[str, Callable[[int], float]] = {"seconds": run.clock.seconds_at, "updates": float}
    if run.clock.has_tokens:
        costs["tokens"] = run.clock.tokens_at
        if mflop := run.log.mflop:
            costs["flops"] = lambda update: run.clock.tokens_at(update) * mflop * 1e6
    drawn = {key: [(cost(update), score) for update, score in points] for key, cost in costs.items()}
    update, score = curves.best(points, metric.higher)
    return Measured(run, drawn, score, {key: cost(update) for key, cost in costs.items()})


def scored(run: Run, metric: Metric):
    """Return the validations with a usable score. A diverged run logs nan, inf or 1e300."""
    return [r for r in run.validations if abs(r.values.get(metric.name, float("nan"))) < 1e100]


def common_target(measured: list[Measured], metric: Metric) -> float:
    """Return the worst of the runs' best scores, which all of them reach."""
    scores = [one.best for one in measured]
    return min(scores) if metric.higher else max(scores)


def common_horizons(measured: list[Measured]) -> dict[str, float]:
    """Return the largest cost of a best score among runs, per axis."""
    found: dict[str, float] = {}
    for one in measured:
        for key, cost in one.to_best.items():
            found[key] = max(cost, found.get(key, 0.0))
    return found


def compared(one: Measured, metric: Metric, target: float, horizons: dict[str, float]) -> Measured:
    """Add the numbers of a run that depend on the common target and horizons."""
    return replace(
        one,
        to_target={key: curves.reach(curve, target, metric.higher, metric.start) for key, curve in one.curves.items()},
        aucc={key: curves.aucc(curve, horizons[key], metric.start) for key, curve in one.curves.items()},
    )

"""Measures of each run in a report: curves over four axes, best, target, AUCC; horizon and target are common to all arms."""

from collections.abc import Callable
from dataclasses import dataclass, field

from . import curves
from .arms import Arm, deviation, mean
from .metrics import Metric
from .runs import Run


@dataclass(frozen=True)
class Axis:
    """An axis of cost. ``scale`` of its base units (seconds, updates, tokens, FLOPs) are one ``unit``."""

    key: str
    unit: str
    scale: float


AXES = (
    Axis("seconds", "hours", 3600.0),
    Axis("updates", "thousand updates", 1e3),
    Axis("tokens", "million tokens", 1e6),
    Axis("flops", "PFLOP", 1e15),
)


@dataclass
class Measured:
    """One run. Dictionaries have a key per axis that its log has; ``to_target`` has None where it is never reached."""

    run: Run
    curves: dict[str, list]
    best: float
    to_best: dict[str, float]
    to_target: dict[str, float | None] = field(default_factory=dict)
    aucc: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class OtherFile:
    """A file that is no run's export, such as another program's, in the figure of bytes: its size and test sacreBLEU."""

    name: str
    bytes: int
    bleu: float


@dataclass
class Study:
    """Everything that tables, figures and page show.

    ``skipped`` are pairs (run, reason): runs without a validation. ``horizons`` has a value per axis. ``comparisons`` are the pairs of arms
    that --compare compares.
    """

    metric: Metric
    arms: list[Arm]
    baseline: Arm
    measured: dict[str, Measured]
    target: float
    target_given: bool
    horizons: dict[str, float]
    horizon_given: bool
    skipped: list[tuple[Run, str]]
    tests: dict = field(default_factory=dict)
    pairs: list = field(default_factory=list)
    against: str | None = None
    ignored: tuple[str, ...] = ()
    points: list[OtherFile] = field(default_factory=list)
    comparisons: list[tuple[Arm, Arm]] = field(default_factory=list)

    def of(self, arm: Arm) -> list[Measured]:
        """The runs that the arm's means are over."""
        return [self.measured[run.name] for run in arm.counted]

    @property
    def axes(self) -> list[Axis]:
        """Those that at least one run has."""
        return [axis for axis in AXES if axis.key in self.horizons]


@dataclass(frozen=True)
class Spread:
    """Mean and deviation (n - 1; None for one value) over the ``count`` of ``total`` seeds that have a value."""

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
    """Curves, best score and what it took to get there."""
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
    """The validations that have a score one can count with: a run that diverged writes nan, inf or 1e300."""
    return [r for r in run.validations if abs(r.values.get(metric.name, float("nan"))) < 1e100]


def common_target(measured: list[Measured], metric: Metric) -> float:
    """The worst best score of runs, so that all of them reach it."""
    scores = [one.best for one in measured]
    return min(scores) if metric.higher else max(scores)


def common_horizons(measured: list[Measured]) -> dict[str, float]:
    """The largest cost of a best score among runs, per axis."""
    found: dict[str, float] = {}
    for one in measured:
        for key, cost in one.to_best.items():
            found[key] = max(cost, found.get(key, 0.0))
    return found


def compare(measured: list[Measured], metric: Metric, target: float, horizons: dict[str, float]) -> None:
    """Fill in what depends on the common target and horizon."""
    for one in measured:
        for key, curve in one.curves.items():
            one.to_target[key] = curves.reach(curve, target, metric.higher, metric.start)
            one.aucc[key] = curves.aucc(curve, horizons[key], metric.start)

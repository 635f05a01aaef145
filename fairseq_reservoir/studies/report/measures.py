"""The numbers of each run in a report: validation curves over four axes, best score, cost to reach the target, and AUCC.

The target and the horizons of AUCC are common to all arms. AUCC is the area under the convergence curve.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from . import curves
from .arms import Arm, deviation, mean
from .bootstrap import Pair
from .choices import Search
from .metrics import Metric
from .options import ReportOptions
from .runs import Run
from .translations import Test


@dataclass(frozen=True)
class Axis:
    """A measure of the cost of training, used as the x axis of curves.

    Attributes:
        key: "seconds", "updates", "tokens" or "flops". All computed values have this unit.
        unit: unit in the tables.
        scale: size of one ``unit`` in units of ``key``: 60 if ``unit`` is minutes and ``key`` is seconds.
    """

    key: str
    unit: str
    scale: float


AXES = (
    Axis("seconds", "minutes", 60.0),
    Axis("updates", "thousand updates", 1e3),
    Axis("tokens", "million tokens", 1e6),
)

SHARES = (0.95, 0.99)


def flop_axis(most: float) -> Axis:
    """Return the axis of FLOPs. Its unit is the largest one in which the number ``most`` is at least 1."""
    units = ((1e18, "EFLOP"), (1e15, "PFLOP"), (1e12, "TFLOP"), (1e9, "GFLOP"))
    scale, unit = next(((scale, unit) for scale, unit in units if most >= scale), (1e6, "MFLOP"))
    return Axis("flops", unit, scale)


@dataclass(frozen=True)
class Measured:
    """The numbers of one run. The keys of dictionaries are the keys of axes. An axis is missing if the run's log does not contain its cost.

    Attributes:
        run: the run.
        curves: points (cost, score) of the validations.
        best: the best score.
        epoch: epoch of the best score.
        to_best: cost at the best score.
        to_share: maps each fraction in ``SHARES`` to the training seconds until the run reaches this fraction of its best score. Empty if
            lower scores are better.
        to_target: cost at which the run reaches the common target; None if it never reaches the target.
        aucc: area under the curve up to the common horizon.
    """

    run: Run
    curves: dict[str, list]
    best: float
    epoch: int
    to_best: dict[str, float]
    to_share: dict[float, float | None]
    to_target: dict[str, float | None] = field(default_factory=dict)
    aucc: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class OtherFile:
    """An additional point in the figure of file sizes, for a file that does not come from a run, such as a model of a different program."""

    name: str
    bytes: int
    bleu: float


@dataclass(frozen=True)
class Study:
    """All data behind the tables, the figures and the page.

    Attributes:
        options: options of the report.
        metric: the score of the validations.
        arms: the arms, in the order of their first runs.
        baseline: the arm with which all other arms are compared.
        measured: numbers of each run, by the run's name.
        target: the common target, a score.
        horizons: the common horizon of AUCC for each axis, by the key of the axis.
        skipped: pairs (run, reason) for the runs without a score.
        tests: test scores of each run, by the run's name.
        pairs: results of the paired bootstrap.
        against: configuration key that ``--against`` names, or None.
        ignored: configuration keys that ``--ignore`` names.
        points: files that ``--point`` adds.
        comparisons: pairs of arms that ``--compare`` names.
        search: the choices of ``--choose``, or None.
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
    search: Search | None = None

    @property
    def runs(self) -> list[Run]:
        """The runs of all arms."""
        return [run for arm in self.arms for run in arm.runs]

    def measured_runs(self, arm: Arm) -> list[Measured]:
        """Return the ``Measured`` of each run that goes into the arm's average; see ``Arm.counted``."""
        return [self.measured[run.name] for run in arm.counted]

    @property
    def axes(self) -> list[Axis]:
        """The axes whose cost is known for at least one run."""
        flops = [flop_axis(self.horizons["flops"])] if "flops" in self.horizons else []
        return [axis for axis in AXES if axis.key in self.horizons] + flops


@dataclass(frozen=True)
class Spread:
    """Mean and standard deviation over seeds.

    Attributes:
        mean: mean over the seeds that have a value; None if no seed has one.
        deviation: sample standard deviation (divisor n - 1); None for fewer than two values.
        count: number of seeds that have a value.
        total: number of all seeds.
    """

    mean: float | None
    deviation: float | None
    count: int
    total: int


def spread(values) -> Spread:
    """Return the mean and the deviation of the values that are not None."""
    present = [value for value in values if value is not None]
    if not present:
        return Spread(None, None, 0, len(values))
    return Spread(mean(present), deviation(present), len(present), len(values))


def measure_run(run: Run, metric: Metric) -> Measured:
    """Return a run's curves, its best score and the cost of this score. The numbers that depend on all runs are added by ``compared``."""
    records = scored(run, metric)
    points = [(record.updates, record.values[metric.name]) for record in records]
    costs: dict[str, Callable[[int], float]] = {"seconds": run.clock.seconds_at, "updates": float}
    if run.clock.has_tokens:
        costs["tokens"] = run.clock.tokens_at
        if mflop := run.log.mflop:
            costs["flops"] = lambda update: run.clock.tokens_at(update) * mflop * 1e6
    drawn = {key: [(cost(update), score) for update, score in points] for key, cost in costs.items()}
    update, score = curves.best(points, metric.higher)
    epoch = next(record.epoch for record in records if record.updates == update)
    shares = SHARES if metric.higher else ()
    to_share = {share: curves.reach(drawn["seconds"], share * score, True, metric.start) for share in shares}
    return Measured(run, drawn, score, epoch, {key: cost(update) for key, cost in costs.items()}, to_share)


def scored(run: Run, metric: Metric):
    """Return the validations with a usable score. A diverged run logs nan, inf or 1e300."""
    return [r for r in run.validations if abs(r.values.get(metric.name, float("nan"))) < 1e100]


def common_target(measured: list[Measured], metric: Metric) -> float:
    """Return the worst of the best scores of all runs. All runs reach this score."""
    scores = [one.best for one in measured]
    return min(scores) if metric.higher else max(scores)


def common_horizons(measured: list[Measured]) -> dict[str, float]:
    """Return the horizon of each axis: the largest cost at which any of the runs reaches its best score."""
    found: dict[str, float] = {}
    for one in measured:
        for key, cost in one.to_best.items():
            found[key] = max(cost, found.get(key, 0.0))
    return found


def compared(one: Measured, metric: Metric, target: float, horizons: dict[str, float]) -> Measured:
    """Return a copy of ``one`` that also has the numbers that depend on the common target and horizons."""
    return replace(
        one,
        to_target={key: curves.reach(curve, target, metric.higher, metric.start) for key, curve in one.curves.items()},
        aucc={key: curves.aucc(curve, horizons[key], metric.start) for key, curve in one.curves.items()},
    )


def ratio(study: Study, arm: Arm, what: str, baseline: Arm | None = None) -> tuple[float, float, float] | None:
    """Return three ratios of an arm to the baseline: updates, seconds per update, and seconds. Each is a ratio of two means over seeds.

    Args:
        study: the study.
        arm: the arm.
        what: "to_best" for the cost to the best score, or "to_target" for the cost to the target.
        baseline: the arm to divide by; the study's baseline if None.

    Returns:
        The three ratios. None if a seed of the arm or of the baseline does not reach the score: the seeds that reach it are the fast ones,
        so their mean would be too small. Also None if a log begins in the middle of training, because the earlier training time is unknown.
    """
    means: list[float] = []
    for one in (arm, baseline or study.baseline):
        if any(measured.run.clock.begins_at for measured in study.measured_runs(one)):
            return None
        costs = [getattr(measured, what) for measured in study.measured_runs(one)]
        found = [spread([cost[key] for cost in costs]) for key in ("updates", "seconds")]
        if any(each.count < each.total for each in found):
            return None
        means += [each.mean or 0.0 for each in found]
    if not all(means):
        return None
    updates, seconds = means[0] / means[2], means[1] / means[3]
    return updates, seconds / updates, seconds

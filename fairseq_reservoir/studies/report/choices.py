"""Select arms for ``--choose``.

Among arms that differ only in one flag, such as the learning rate, the arm with the best score is chosen.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from .arms import Arm, bare, mean, name_missing, series_of
from .configuration import in_order, is_number, setting
from .metrics import Metric, choose, scores_of
from .runs import Run


@dataclass(frozen=True)
class Choice:
    """The choice among arms that differ only in the flag of ``--choose``.

    Attributes:
        arm: the chosen arm.
        value: the chosen arm's value of the flag.
        tried: for each value of the flag, in ascending order, the best validation scores of the compared runs.
    """

    arm: Arm
    value: object
    tried: dict[object, list[float]]

    @property
    def at_end(self) -> bool:
        """Whether the chosen value is the smallest or the largest of several numbers."""
        values = list(self.tried)
        return len(values) > 1 and is_number(self.value) and self.value in (values[0], values[-1])


@dataclass(frozen=True)
class Search:
    """The choices of ``--choose``.

    Attributes:
        key: configuration key of the flag.
        metric: the score by which arms were chosen.
        choices: one ``Choice`` for each chosen arm.
        others: the arms that were not chosen.
    """

    key: str
    metric: Metric
    choices: list[Choice]
    others: list[Arm] = field(default_factory=list)

    @property
    def leaf(self) -> str:
        """Name of the flag without its group."""
        return self.key.rpartition(".")[2]


def search(
    arms: list[Arm],
    key: str,
    ignored: tuple[str, ...],
    metric: Metric,
    best: Callable[[Run, Metric], float | None],
) -> Search:
    """Choose one arm of each series. The arms of a series differ only in ``key``. Series are in the order of their first arms.

    If all runs have the same ``best_checkpoint_metric``, arms are compared by this metric, as in a sweep with ``choose:``. Otherwise they
    are compared by ``metric``. Arms are compared on the seeds that all arms of the series have. If there is no such seed, all seeds are
    used. An interrupted arm can only be chosen if all arms of its series were interrupted. The value of the flag is removed from the name
    of a chosen arm if the shorter name is unique.

    Args:
        arms: all arms. The names and the missing seeds of the chosen arms are changed.
        key: configuration key of the flag.
        ignored: configuration keys in which the runs of an arm may differ.
        metric: metric of the report.
        best: function that returns the best score of a run, or None if the run has no finite score.
    """
    metric = _metric_of_training([run for arm in arms for run in arm.runs], metric)
    series = series_of(arms, (key, *ignored))
    choices = [_choose(members, key, lambda run: best(run, metric), metric.higher) for members in series]
    short = [bare(choice.arm.runs[0], (key, *ignored)) for choice in choices]
    for choice, name in zip(choices, short):
        choice.arm.name = name if short.count(name) == 1 else choice.arm.name
    chosen = [choice.arm for choice in choices]
    name_missing(chosen)
    return Search(key, metric, choices, [arm for arm in arms if arm not in chosen])


def _choose(members, key, score, higher):
    finished = [arm for arm in members if not arm.interrupted] or members
    common = set.intersection(*({run.seed for run in arm.counted} for arm in finished))
    scores, arms = {}, {}
    for arm in sorted(finished, key=lambda arm: in_order(setting(arm.runs[0].configuration, key))):
        compared = [run for run in arm.counted if run.seed in common] or arm.counted
        value = setting(arm.runs[0].configuration, key)
        if found := [one for run in compared if (one := score(run)) is not None]:
            scores[value], arms[value] = found, arm
    if not scores:
        return Choice(members[0], setting(members[0].runs[0].configuration, key), {})
    value = (max if higher else min)(scores, key=lambda value: mean(scores[value]))
    return Choice(arms[value], value, scores)


def _metric_of_training(runs, metric):
    names = {str(run.configuration.get("checkpoint.best_checkpoint_metric", "loss")) for run in runs}
    has_all = len(names) == 1 and all(names <= scores_of(run.validations) for run in runs)
    return choose(names.pop(), runs) if has_all else metric

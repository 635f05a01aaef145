"""Choose the best value of one axis, such as the learning rate, with the first seed. The other seeds run only with this value."""

import contextlib
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal

from .run import Run


@dataclass(frozen=True)
class Score:
    """The best validation score of a run.

    Attributes:
        value: the score.
        name: the metric by which fairseq selects checkpoint_best.pt.
        higher: whether higher is better.
    """

    value: float
    name: str
    higher: bool


@dataclass
class Choice:
    """A choice of the best value of one axis. The compared runs differ only in this axis and in the seed.

    Attributes:
        name: common part of the runs' names, such as ``LTLTL``.
        axis: name of the axis.
        make: function that returns the runs of a new value, one per seed in the order of the seeds. The function returns [] if the grid
            file excludes the value.
        further: how many values may still be added to the values of the grid file.
        first: runs of the first seed, by value of the axis.
        others: runs of the other seeds, by value of the axis.
    """

    name: str
    axis: str
    make: Callable[[str], list[Run]]
    further: int = 0
    first: dict[str, Run] = field(default_factory=dict)
    others: dict[str, list[Run]] = field(default_factory=dict)

    @property
    def is_over(self) -> bool:
        """Whether all runs of the first seed have ended."""
        return all(run.state[0] in ("done", "failed") for run in self.first.values())

    def best(self, scores: dict[str, Score]) -> str | None:
        """Return the value with the best score. If several values have the best score, return the first of them.

        Return None if there are no scores, or if some runs of the first seed have not ended. ``scores`` has no entry for a run without a
        score, such as a training that failed because of a high learning rate.
        """
        if not scores or not self.is_over:
            return None
        return min(scores, key=lambda value: -scores[value].value if scores[value].higher else scores[value].value)

    def go_beyond(self, score_of: Callable[[Run], Score | None]) -> list[Run]:
        """Add a value beyond the best value, if the best value is the smallest or the largest one. Return the runs of the added value.

        The run of the first seed comes first. The added value continues the series of values: 1.6e-2 follows 4e-3 and 8e-3. Return [] if no
        value is added, for example because the grid file excludes the value.
        """
        if not self.further or not self.is_over:
            return []
        best = self.best(self.scores(score_of))
        if best is None or best not in self._edges():
            return []
        self.further -= 1
        ordered = sorted(self.first, key=float)
        value = _beyond(ordered[1] if best == ordered[0] else ordered[-2], best)
        runs = [] if float(ordered[0]) <= float(value) <= float(ordered[-1]) else self.make(value)
        if runs:
            self.first[value], *self.others[value] = runs
        return runs

    def scores(self, score_of: Callable[[Run], Score | None]) -> dict[str, Score]:
        """Return the score for each value whose run of the first seed has finished training with a finite score."""
        found = {value: score_of(run) for value, run in self.first.items() if _is_trained(run)}
        return {value: score for value, score in found.items() if score is not None and math.isfinite(score.value)}

    def describe(self, scores: dict[str, Score]) -> str:
        """Describe the choice in one line, such as ``LTLTL: lr 2e-3, loss 4.21 (1e-3: 4.3, 4e-3: 4.25)``.

        If the chosen value is the smallest or the largest one, the line ends with the note that no value beyond it was tried.
        """
        best = self.best(scores)
        if best is None:
            states = ", ".join(f"{run.name} {run.state[0]}" for run in self.first.values())
            reason = (
                "logs of the first seed have no scores" if self.is_over else "runs of the first seed have not ended"
            )
            return f"{self.name}: no {self.axis} chosen, because the {reason} ({states})"
        rest = [f"{value}: {_digits(scores.get(value))}" for value in self.first if value != best]
        line = f"{self.name}: {self.axis} {best}, {scores[best].name} {_digits(scores[best])} ({', '.join(rest)})"
        return f"{line}; no value beyond {best} was tried" if best in self._edges() else line

    def _edges(self):
        """Return the smallest and the largest value; () if some values are not numbers."""
        with contextlib.suppress(ValueError):
            ordered = sorted(self.first, key=float)
            return ordered[0], ordered[-1]
        return ()


class Decisions:
    """Decide which runs to add to a sweep after runs of the first seed have ended.

    First, runs of the first seed may be added for values beyond the smallest or the largest value. Later, runs of all other seeds are added
    for the best value.

    Args:
        choices: the choices. Each one is decided independently, as soon as all its runs of the first seed have ended.
        score_of: function that returns the score of a run, or None.
        is_awaited: function that returns whether this sweep still waits for the end of a run. For example, it waits for a failed run
            that will be retried.
    """

    def __init__(
        self, choices: list[Choice], score_of: Callable[[Run], Score | None], is_awaited: Callable[[Run], bool]
    ):
        self.choices, self.score_of, self.is_awaited = choices, score_of, is_awaited
        self.made: dict[str, str] = {}  # description of each decided choice, by the choice's name

    def next_runs(self) -> list[tuple[str, list[Run]]]:
        """Return pairs (line to print, runs to add). Each run is returned once. Runs that are needed for a choice come first."""
        beyond, chosen = [], []
        for choice in self.open:
            while not self._waits(choice) and (further := choice.go_beyond(self.score_of)):
                line = f"{choice.name}: the best {choice.axis} is the smallest or the largest tried value; adding the next value"
                beyond.append((line, further[:1]))
            if not self._waits(choice):
                scores = choice.scores(self.score_of)
                best = choice.best(scores)
                self.made[choice.name] = choice.describe(scores)
                chosen.append((self.made[choice.name], choice.others.get(best, []) if best else []))
        return beyond + chosen

    @property
    def open(self) -> list[Choice]:
        """The choices that are not decided yet."""
        return [choice for choice in self.choices if choice.name not in self.made]

    @property
    def lines(self) -> list[str]:
        """A line for each choice: the chosen value, or why no value was chosen."""
        return [self.made.get(each.name) or each.describe(each.scores(self.score_of)) for each in self.choices]

    def _waits(self, choice):
        return not choice.is_over or any(self.is_awaited(run) for run in choice.first.values())


def _beyond(value: str, edge: str) -> str:
    """Return the next number of the geometric series that begins with ``value``, ``edge``. The notation is that of ``edge``.

    The result is rounded to two significant digits. If ``value`` and ``edge`` are whole, it is rounded to a whole number of at least 1.
    """
    found = f"{Decimal(edge) * Decimal(edge) / Decimal(value):.1e}"
    if value.isdecimal() and edge.isdecimal():
        return str(max(1, round(Decimal(found))))
    if "e" not in edge.lower():
        return f"{Decimal(found).normalize():f}"
    digits, power = found.split("e")
    return f"{Decimal(digits).normalize():f}e{int(power)}"


def _is_trained(run):
    """Return whether the first step of a run, its training, has succeeded. Later steps may have failed."""
    word, *step = run.state
    return word == "done" or word == "failed" and step[0] != run.steps[0].name


def _digits(score):
    return "no score" if score is None else f"{score.value:.5g}"

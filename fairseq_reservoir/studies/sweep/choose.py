"""Choose the value of one axis, such as the learning rate, with the first seed. Other seeds run with the best value only."""

import contextlib
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal

from .run import Run


@dataclass(frozen=True)
class Score:
    """The best validation of a run by the metric ``name``, which also decides fairseq's checkpoint_best.pt."""

    value: float
    name: str
    higher: bool


@dataclass
class Choice:
    """Runs that differ in the chosen axis and the seed only.

    Attributes:
        name: common part of the runs' names, such as ``LTLTL``.
        axis: name of the chosen axis.
        make: returns the runs of all seeds, in order, with a value beyond those of the grid file; none if the file excludes it.
        further: how many such values may be added.
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
        """Return the value with the best score, the first of equal ones. None while a run of the first seed has not ended.

        A failed training, such as one with too high a learning rate, does not count. Neither does a run without a score.
        """
        if not scores or not self.is_over:
            return None
        return min(scores, key=lambda value: -scores[value].value if scores[value].higher else scores[value].value)

    def go_beyond(self, score_of: Callable[[Run], Score | None]) -> list[Run]:
        """Add the value beyond the best one if that is the smallest or the largest, and return its runs, the first seed first.

        The added value continues the series: after 4e-3 and 8e-3 comes 1.6e-2. Nothing is added if the grid file excludes it.
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
        """Return by value the scores of the runs of the first seed that have finished training with a finite score."""
        found = {value: score_of(run) for value, run in self.first.items() if _is_trained(run)}
        return {value: score for value, score in found.items() if score is not None and math.isfinite(score.value)}

    def describe(self, scores: dict[str, Score]) -> str:
        """Describe the choice: ``LTLTL: lr 2e-3, loss 4.21 (1e-3: 4.3, 4e-3: 4.25)``, and whether a value beyond it was not tried."""
        best = self.best(scores)
        if best is None:
            states = ", ".join(f"{run.name} {run.state[0]}" for run in self.first.values())
            return f"{self.name}: no {self.axis} chosen, because the logs of the first seed have no scores ({states})"
        rest = [f"{value}: {_digits(scores.get(value))}" for value in self.first if value != best]
        line = f"{self.name}: {self.axis} {best}, {scores[best].name} {_digits(scores[best])} ({', '.join(rest)})"
        return f"{line}; no value beyond {best} was tried" if best in self._edges() else line

    def _edges(self):
        """Return the smallest and the largest value if all values are numbers."""
        with contextlib.suppress(ValueError):
            ordered = sorted(self.first, key=float)
            return ordered[0], ordered[-1]
        return ()


class Decisions:
    """The runs that follow from finished runs: values beyond the edge first, then the other seeds with the best value.

    Args:
        choices: each one is decided by itself, as soon as its own runs of the first seed have ended.
        score_of: returns the score of a run, or None.
        is_awaited: returns whether a run, such as a failed one that is tried again, will still end.
    """

    def __init__(
        self, choices: list[Choice], score_of: Callable[[Run], Score | None], is_awaited: Callable[[Run], bool]
    ):
        self.choices, self.score_of, self.is_awaited = choices, score_of, is_awaited
        self.made: dict[str, str] = {}  # the line of each decided choice, by its name

    def next_runs(self) -> list[tuple[str, list[Run]]]:
        """Return the runs to add, each one once, with a line about them. Runs that decide about other runs come first."""
        beyond, chosen = [], []
        for choice in self.open:
            while not self._waits(choice) and (further := choice.go_beyond(self.score_of)):
                line = f"{choice.name}: the best {choice.axis} is at the edge; adding the value beyond it"
                beyond.append((line, further[:1]))
            if not self._waits(choice):
                scores = choice.scores(self.score_of)
                best = choice.best(scores)
                self.made[choice.name] = choice.describe(scores)
                chosen.append((self.made[choice.name], choice.others.get(best, []) if best else []))
        return beyond + chosen

    @property
    def open(self) -> list[Choice]:
        """The choices that are not decided."""
        return [choice for choice in self.choices if choice.name not in self.made]

    @property
    def lines(self) -> list[str]:
        """A line on each choice: the chosen value, or why none was chosen."""
        return [self.made.get(each.name) or each.describe(each.scores(self.score_of)) for each in self.choices]

    def _waits(self, choice):
        return not choice.is_over or any(self.is_awaited(run) for run in choice.first.values())


def _beyond(value: str, edge: str) -> str:
    """Return the number after ``value`` and ``edge`` in their ratio. It has two digits and the notation of ``edge``, and stays whole."""
    found = f"{Decimal(edge) * Decimal(edge) / Decimal(value):.1e}"
    if value.isdecimal() and edge.isdecimal():
        return str(max(1, round(Decimal(found))))
    if "e" not in edge.lower():
        return f"{Decimal(found).normalize():f}"
    digits, power = found.split("e")
    return f"{Decimal(digits).normalize():f}e{int(power)}"


def _is_trained(run):
    """Return whether the training, the first step, has succeeded. Later steps may have failed."""
    word, *step = run.state
    return word == "done" or word == "failed" and step[0] != run.steps[0].name


def _digits(score):
    return "no score" if score is None else f"{score.value:.5g}"

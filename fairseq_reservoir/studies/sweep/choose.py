"""Leaves the value of one axis, such as the learning rate, to the first seed; the other seeds are run with the best one alone."""

import contextlib
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal

from .run import Run


@dataclass(frozen=True)
class Score:
    """The best validation of a run, by the metric ``name`` that fairseq keeps checkpoint_best.pt by."""

    value: float
    name: str
    higher: bool


@dataclass
class Choice:
    """Runs that differ in the chosen axis and the seed only.

    Attributes:
        name: what they have in common, such as ``LTLTL``.
        axis: the name of the chosen one.
        make: gives the runs of all seeds, in order, with a value beyond those of the grid file; none where it excludes that.
        further: how many more of these there may be.
        first: the runs of the first seed, by the value of the axis.
        others: those of the other seeds.
    """

    name: str
    axis: str
    make: Callable[[str], list[Run]]
    further: int = 0
    first: dict[str, Run] = field(default_factory=dict)
    others: dict[str, list[Run]] = field(default_factory=dict)

    @property
    def is_over(self) -> bool:
        """Whether all runs of the first seed are."""
        return all(run.state[0] in ("done", "failed") for run in self.first.values())

    def best(self, scores: dict[str, Score]) -> str | None:
        """The value with the best score, of equals the first; None as long as a run of the first seed is not over.

        A run whose training has failed, as one of too high a rate may, or that has no score does not count.
        """
        if not scores or not self.is_over:
            return None
        return min(scores, key=lambda value: -scores[value].value if scores[value].higher else scores[value].value)

    def go_beyond(self, score_of: Callable[[Run], Score | None]) -> list[Run]:
        """Where the best value is the smallest or the largest, adds the one beyond it; its runs, that of the first seed first.

        Values go on as they end: after 4e-3 and 8e-3 comes 1.6e-2. None does where the grid file excludes it.
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
        """By value, the scores of the runs of the first seed that are trained to the end and have one."""
        found = {value: score_of(run) for value, run in self.first.items() if _is_trained(run)}
        return {value: score for value, score in found.items() if score is not None and math.isfinite(score.value)}

    def describe(self, scores: dict[str, Score]) -> str:
        """The choice in a line: ``LTLTL: lr 2e-3, loss 4.21 (1e-3: 4.3, 4e-3: 4.25)``, and whether a value beyond it may be better."""
        best = self.best(scores)
        if best is None:
            states = ", ".join(f"{run.name} {run.state[0]}" for run in self.first.values())
            return f"{self.name}: no {self.axis} chosen, for want of scores in the logs of the first seed ({states})"
        rest = [f"{value}: {_digits(scores.get(value))}" for value in self.first if value != best]
        line = f"{self.name}: {self.axis} {best}, {scores[best].name} {_digits(scores[best])} ({', '.join(rest)})"
        return f"{line}; no value beyond {best} was tried" if best in self._edges() else line

    def _edges(self):
        """The smallest and the largest value, where all are numbers."""
        with contextlib.suppress(ValueError):
            ordered = sorted(self.first, key=float)
            return ordered[0], ordered[-1]
        return ()


class Decisions:
    """What follows from the runs that are over: of each choice the values beyond the edge, then the other seeds with the best value.

    Args:
        choices: each is decided by itself, as soon as its own runs of the first seed are over.
        score_of: the score of a run, None where it has none.
        is_awaited: whether a run, such as a failed one that is tried again, is still to come to its end.
    """

    def __init__(
        self, choices: list[Choice], score_of: Callable[[Run], Score | None], is_awaited: Callable[[Run], bool]
    ):
        self.choices, self.score_of, self.is_awaited = choices, score_of, is_awaited
        self.made: dict[str, str] = {}  # by the name of a choice that is decided, the line on it

    def following(self) -> list[tuple[str, list[Run]]]:
        """The runs to add, none of them twice, with what is to be said of it; those that others wait for come first."""
        beyond, chosen = [], []
        for choice in self.open:
            while not self._waits(choice) and (further := choice.go_beyond(self.score_of)):
                beyond.append(
                    (f"{choice.name}: the best {choice.axis} is at the edge; one beyond it follows", further[:1])
                )
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
        """A line on each choice: what was chosen, or why nothing was."""
        return [self.made.get(each.name) or each.describe(each.scores(self.score_of)) for each in self.choices]

    def _waits(self, choice):
        return not choice.is_over or any(self.is_awaited(run) for run in choice.first.values())


def _beyond(value: str, edge: str) -> str:
    """What follows after ``value`` and ``edge`` in their ratio, of two digits, written as ``edge`` is; whole after whole numbers."""
    following = f"{Decimal(edge) * Decimal(edge) / Decimal(value):.1e}"
    if value.isdecimal() and edge.isdecimal():
        return str(max(1, round(Decimal(following))))
    if "e" not in edge.lower():
        return f"{Decimal(following).normalize():f}"
    digits, power = following.split("e")
    return f"{Decimal(digits).normalize():f}e{int(power)}"


def _is_trained(run):
    """Whether the training, its first step, has ended well; what follows it may have failed."""
    word, *step = run.state
    return word == "done" or word == "failed" and step[0] != run.steps[0].name


def _digits(score):
    return "no score" if score is None else f"{score.value:.5g}"

"""Read a grid file and list its runs: all combinations of the values of its axes.

    command: fairseq-train data-bin --user-dir fairseq_reservoir --arch reservoir_transformer_study --max-update 700
    axes: {reservoir-encoder: [LLL, LTLTL], lr: [1e-3, 2e-3], seed: [1, 2]}
    exclude: [{reservoir-encoder: LLL, lr: 2e-3}]
    then: [fairseq-generate data-bin --user-dir fairseq_reservoir --path "{out}/checkpoint_best.pt" --results-path "{out}"]

gives six runs: LLL-lr1e-3-1 and so on. ``commands/sweep.py`` explains all keys.
"""

import functools
import itertools
import math
import os
import re
from dataclasses import dataclass, replace
from decimal import Decimal, InvalidOperation
from pathlib import Path

from ...errors import InputError
from ...files import why
from .choose import Choice
from .grid_file import GridFile
from .run import Run
from .steps import make_steps

_LONGEST_NAME = 255  # bytes of a folder's name
# Listing more runs would take hours.
MOST_RUNS = 10_000


@dataclass(frozen=True)
class Axis:
    """An axis of the grid: a setting of the runs, and its values.

    Attributes:
        name: name of the setting.
        kind: "arm", "variable" (of the environment) or "flag" (of the command).
        values: its values, as written in the file.
        named: whether the names of runs contain the value. True if the grid file has a list of values, even if the list has only
            one value.
    """

    name: str
    kind: str
    values: tuple[str, ...]
    named: bool

    @property
    def is_seed(self) -> bool:
        return self.name.lower() == "seed"

    def tag(self, value: str) -> str:
        """Return the abbreviation of a value in the names of runs: ``LLL``, ``lr1e-3``, ``share-all-embeddings``."""
        if self.kind == "flag" and value in ("yes", "no"):
            tag = self.name if value == "yes" else f"no-{self.name}"
        elif self.is_seed or self.kind == "arm" or value[:1].isalpha():
            tag = value
        else:
            tag = f"{self.name.lower()}{value}"
        return re.sub(r"[^\w.+-]+", "_", tag).strip("_")


def read_grid(path: str, out: str) -> tuple[list[Run], list[Choice]]:
    """Read a grid file. Return its runs and its choices. The runs of the first seed come first, because their results decide the choices.

    Args:
        path: the grid file, YAML.
        out: the folder of the sweep.

    Raises:
        InputError: the file is invalid, or defines no runs or too many runs. The message is one line with the file, the key and the
            problem.
    """
    grid = _Grid(path)
    axes = grid.axes()
    combinations = math.prod(len(axis.values) for axis in axes)
    if combinations > MOST_RUNS:
        raise grid.error("axes", f"{combinations} combinations; a sweep has at most {MOST_RUNS}")
    seed_first = sorted(axes, key=lambda axis: not axis.is_seed)
    chosen = [dict(zip(seed_first, values)) for values in itertools.product(*(axis.values for axis in seed_first))]
    chosen = grid.without_excluded([{axis: values[axis] for axis in axes} for values in chosen])
    if not chosen:
        raise grid.error("exclude", "excludes all runs")
    folder, runs = _folder(out), {}
    for values in chosen:
        run = grid.run(folder, values)
        if len(os.fsencode(run.name)) > _LONGEST_NAME:
            raise grid.error(
                "axes",
                f"the name of a run, {run.name[:40]}..., has more than {_LONGEST_NAME} bytes; "
                "under the key arms, define a short name for its flags",
            )
        if run.name in runs:
            raise grid.error(
                "axes",
                f"two runs would have the name {run.name}; under the key arms, define different names for their flags",
            )
        runs[run.name] = run
    chosen_axis = grid.chosen_axis(axes)
    if chosen_axis is None:
        return list(runs.values()), []
    return grid.split(chosen_axis, list(zip(chosen, runs.values())), folder)


def _folder(out):
    """Return the absolute path of the sweep's folder. Commands contain this path, so two spellings of a folder must give the same path."""
    folder = Path(out).absolute()
    if ".." in folder.parts:
        folder = Path(os.path.realpath(folder))
    try:
        os.stat(folder)
    except (FileNotFoundError, NotADirectoryError):
        pass  # the first run creates it, or reports why it cannot be created
    except OSError as error:
        raise InputError(f"--out {out}: cannot be used ({why(error)})") from error
    return folder


class _Grid(GridFile):
    """The axes and the runs of a grid file."""

    def _place_of(self, flag):
        """Return where the grid file sets a flag outside the key ``axes``: "the command" or an arm. None if the flag is not set there."""
        places = {"the command": self.command} | {f"arms: {name}": words for name, words in self.arms.items()}
        return next((place for place, words in places.items() if flag in [word.split("=")[0] for word in words]), None)

    def axes(self):
        """Return the axes: first the axis of arms, then variables and flags in the order of the file, and the seed last."""
        axes = [Axis("arm", "arm", tuple(self.arms), True)] if self.arms else []
        axes += [self._axis("environment", name, "variable") for name in self.mapping("environment")]
        axes += [self._axis("axes", name.removeprefix("--"), "flag", name) for name in self.mapping("axes")]
        for axis in axes:
            for value in axis.values:
                # "", "." and ".." would name the sweep's own folder and its parent.
                if axis.named and not re.search(r"[^\W_]", axis.tag(value)):
                    raise self.error(
                        "arms" if axis.kind == "arm" else axis.name, f"{value!r}: a name needs a letter or a digit"
                    )
            if axis.kind == "flag" and (place := self._place_of(f"--{axis.name}")):
                raise self.error(f"axes: {axis.name}", f"--{axis.name} is also set in {place}; remove it there")
        seeds = [axis for axis in axes if axis.is_seed]
        if not seeds and self.command[0] == "fairseq-train":
            if place := self._place_of("--seed"):
                raise self.error(place.removeprefix("the "), "move --seed to the axes, as in seed: [1, 2]")
            seeds = [Axis("seed", "flag", ("1",), True)]
        for value in itertools.chain.from_iterable(axis.values for axis in seeds):
            if not value.isdecimal():
                raise self.error("axes: seed", f"{value!r} is not a whole number")
        return [*(axis for axis in axes if not axis.is_seed), *seeds]

    def without_excluded(self, chosen):
        """Return the combinations that no entry of ``exclude`` matches. A combination is a dictionary of values by axis."""
        known = {axis.name: axis.values for axis in chosen[0]}
        for entry in self.sequence("exclude"):
            if not isinstance(entry, dict) or not entry:
                raise self.error("exclude", f"{entry!r} is not a mapping such as {{lr: 1e-3, seed: 2}}")
            entry = {
                name.removeprefix("--"): [value] if isinstance(value, str) else value for name, value in entry.items()
            }
            entry = {
                name: [self.filled("exclude", value) if isinstance(value, str) else value for value in values]
                for name, values in entry.items()
            }
            for name, values in entry.items():
                for value in values:
                    if value not in known.get(name, ()):
                        allowed = (
                            ", ".join(known[name]) if name in known else f"not an axis; choose from {', '.join(known)}"
                        )
                        raise self.error(
                            "exclude", f"{name}: {value}: {'choose from ' if name in known else ''}{allowed}"
                        )
            chosen = [v for v in chosen if any(value not in entry.get(axis.name, [value]) for axis, value in v.items())]
        return chosen

    def chosen_axis(self, axes):
        """Return the axis that the key ``choose`` names. If the file lacks this key, return None: then every seed runs all values."""
        if "choose" not in self.found:
            if "beyond" in self.found:
                raise self.error("beyond", "has no effect without the key 'choose'; add choose: AXIS")
            return None
        name = self.found["choose"]
        if self.command[0] != "fairseq-train":
            raise self.error(
                "choose", "needs fairseq-train as the command, because scores are read from the log of fairseq-train"
            )
        several = {axis.name: axis for axis in axes if len(axis.values) > 1 and not axis.is_seed}
        axis = several.get(name.removeprefix("--")) if isinstance(name, str) else None
        if axis is None:
            raise self.error(
                "choose",
                f"{name or 'nothing'}: not an axis with several values; choose from {', '.join(several) or 'none'}",
            )
        if sum(axis.is_seed for axis in axes) > 1:
            raise self.error("choose", "the seed is both under axes and under environment; remove one of them")
        return axis

    def further(self, axis):
        """Return the number in the key ``beyond``: for each combination of the other axes' values, so many values may be added."""
        number = self.found.get("beyond", "0")
        if not isinstance(number, str) or not number.isdecimal():
            raise self.error("beyond", f"{number!r} is not a whole number")
        for value in axis.values if int(number) else ():
            if not _is_positive(value):
                raise self.error(
                    "beyond", f"{axis.name}: {value} is not a number above 0, so the next value cannot be computed"
                )
        return int(number)

    def split(self, axis, made, folder):
        """Return the runs that can start at once, and one choice for each combination of the other axes.

        Args:
            axis: the chosen axis.
            made: all runs, as pairs (values by axis, run).
            folder: the folder of the sweep.
        """
        seed = next(other for other in made[0][0] if other.is_seed)
        further = self.further(axis)
        choices: dict = {}
        seeds: dict = {}
        for values, run in made:
            others = {other: value for other, value in values.items() if other not in (axis, seed)}
            key = tuple(others.values())
            seeds.setdefault(key, {})[values[seed]] = None
            if key not in choices:
                name = _name(others) if any(other.named for other in others) else "all"
                make = functools.partial(self._with_another, folder, values, axis, seed, seeds[key])
                choices[key] = Choice(name, axis.name, make, further)
            choice = choices[key]
            if values[seed] == seed.values[0]:
                choice.first[values[axis]] = run
            elif values[axis] in choice.first:
                choice.others.setdefault(values[axis], []).append(run)
            else:
                raise self.error(
                    "choose",
                    f"{run.name} needs a run with the first seed, {seed.values[0]}, but the key exclude removes that run",
                )
        runs = [run for choice in choices.values() for run in choice.first.values()]
        several = [choice for choice in choices.values() if len(choice.first) > 1]
        # If exclude leaves only one value, there is nothing to choose.
        runs += [
            run
            for choice in choices.values()
            if choice not in several
            for others in choice.others.values()
            for run in others
        ]
        return runs, several

    def _with_another(self, folder, values, axis, seed, seeds, value):
        """Return the runs of ``seeds`` with a new ``value`` of the axis; [] if the grid file excludes this value for the first seed."""
        # The file may contain the same number in another notation: 0.016 for 1.6e-2.
        value = next((named for named in axis.values if _same_number(named, value)), value)
        further = [values | {axis: value, seed: each} for each in seeds]
        if value in axis.values:  # exclude can only contain values of the file
            further = self.without_excluded(further)
        has_first_seed = further and further[0][seed] == seed.values[0]
        return [self.run(folder, each) for each in further] if has_first_seed else []

    def run(self, out, values):
        """Return the run for ``values``, a dictionary of values by axis. The run has its own folder below ``out``."""
        name = _name(values)
        folder = out / name
        commands = [self._first_command(values), *self.then]
        environment = {
            axis.name: value.replace("{out}", str(folder)) for axis, value in values.items() if axis.kind == "variable"
        }
        return Run(name, folder, environment, make_steps(commands, folder))

    def _first_command(self, values):
        """Return the grid's command with the flags for these values."""
        words = list(self.command)
        for axis, value in values.items():
            if axis.kind == "arm":
                words += self.arms[value]
            elif axis.kind == "flag" and value != "no":
                words += [f"--{axis.name}"] if value == "yes" else [f"--{axis.name}", value]
        if words[0] == "fairseq-train" and not any(word.split("=")[0] == "--save-dir" for word in words):
            words += ["--save-dir", "{out}"]
        return words

    def _axis(self, key, name, kind, written=None):
        values = self.found[key][written or name]
        if kind == "variable" and not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            raise self.error(f"{key}: {name!r}", "is not the name of a variable; use letters, digits and _")
        if kind == "flag" and not re.fullmatch(r"[A-Za-z][\w.-]*", name):
            raise self.error(f"{key}: {name!r}", "is not the name of a flag")
        listed = values if isinstance(values, list) else [values]
        if not listed or not all(isinstance(value, str) and value for value in listed):
            raise self.error(f"{key}: {name}", "must be a value or a list of values")
        listed = [self.filled(f"{key}: {name}", value) for value in listed]
        if len(set(listed)) < len(listed):
            raise self.error(f"{key}: {name}", f"{next(v for v in listed if listed.count(v) > 1)} appears twice")
        axis = Axis(name, kind, tuple(listed), isinstance(values, list))
        return replace(axis, named=axis.named or axis.is_seed)


def _name(values):
    tags = [axis.tag(value) for axis, value in values.items() if axis.named]
    unnamed = all(axis.is_seed for axis in values if axis.named)
    return "-".join(["run", *tags] if unnamed else tags)


def _is_positive(text):
    try:
        return 0 < float(text) < math.inf
    except ValueError:
        return False


def _same_number(one, other):
    try:
        return Decimal(one) == Decimal(other)
    except InvalidOperation:
        return False

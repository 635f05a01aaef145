"""Reads a grid file and lists its runs: every combination of the values of its axes.

    command: fairseq-train data-bin --user-dir fairseq_reservoir --arch reservoir_transformer_study --max-update 700
    axes: {reservoir-encoder: [LLL, LTLTL], lr: [1e-3, 2e-3], seed: [1, 2]}
    exclude: [{reservoir-encoder: LLL, lr: 2e-3}]
    then: [fairseq-generate data-bin --user-dir fairseq_reservoir --path "{out}/checkpoint_best.pt" --results-path "{out}"]

are six runs, LLL-lr1e-3-1 and so on. See ``commands/sweep.py`` for every key.
"""

import functools
import itertools
import math
import os
import re
import shlex
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from pathlib import Path

import yaml

from ...errors import InputError
from ...files import why
from .choose import Choice
from .run import Run, Step

_LONGEST_NAME = 255  # of a folder
_NAMES = re.compile(r"(?<!\$)\{[A-Za-z_]\w*\}")  # not ${HOME}, which is for a shell that a command may start
# More would take hours to name, and years to train.
MOST_RUNS = 10_000
KEYS = ("command", "environment", "axes", "arms", "exclude", "then", "choose", "beyond", "defaults")


@dataclass(frozen=True)
class Axis:
    """A setting that differs between runs, or is the same in all of them.

    Attributes:
        kind: ``arm``, ``variable`` of the environment, or ``flag``.
        values: by the name that they have in the file.
        named: whether the names of runs have them; so it is with a list in the file, even of one value.
    """

    name: str
    kind: str
    values: tuple[str, ...]
    named: bool

    @property
    def is_seed(self) -> bool:
        return self.name.lower() == "seed"

    def tag(self, value: str) -> str:
        """The text that a value adds to the name of a run: ``LLL``, ``lr1e-3``, ``share-all-embeddings``."""
        if self.kind == "flag" and value in ("yes", "no"):
            tag = self.name if value == "yes" else f"no-{self.name}"
        elif self.is_seed or self.kind == "arm" or value[:1].isalpha():
            tag = value
        else:
            tag = f"{self.name.lower()}{value}"
        return re.sub(r"[^\w.+-]+", "_", tag).strip("_")


def read_grid(path: str, out: str) -> tuple[list[Run], list[Choice]]:
    """The runs that a grid file asks for in any case, those of the first seed first, and what ``choose`` leaves to the first seed.

    Args:
        path: the grid file, YAML.
        out: the folder of the sweep.

    Raises:
        InputError: one line with the file, the key and what is allowed.
    """
    grid = _Grid(path)
    axes = grid.axes()
    combinations = math.prod(len(axis.values) for axis in axes)
    if combinations > MOST_RUNS:
        raise grid.error("axes", f"{combinations} combinations; at most {MOST_RUNS} are done in one sweep")
    seed_first = sorted(axes, key=lambda axis: not axis.is_seed)
    chosen = [dict(zip(seed_first, values)) for values in itertools.product(*(axis.values for axis in seed_first))]
    chosen = grid.without_excluded([{axis: values[axis] for axis in axes} for values in chosen])
    if not chosen:
        raise grid.error("exclude", "no run is left")
    folder, runs = Path(out).absolute(), {}  # commands have the folder in them, and ../runs is runs
    if ".." in folder.parts:
        folder = Path(os.path.realpath(folder))
    try:
        os.stat(folder)
    except (FileNotFoundError, NotADirectoryError):
        pass  # the first run makes it, or finds that it cannot
    except OSError as error:
        raise InputError(f"--out {out}: cannot be used ({why(error)})") from error
    for values in chosen:
        run = grid.run(folder, values)
        if len(os.fsencode(run.name)) > _LONGEST_NAME:
            raise grid.error(
                "axes",
                f"a run would be called {run.name[:40]}..., of more than {_LONGEST_NAME} bytes; name its flags under arms",
            )
        if run.name in runs:
            raise grid.error("axes", f"two runs would be called {run.name}; give their flags a name each, under arms")
        runs[run.name] = run
    chosen_axis = grid.chosen_axis(axes)
    if chosen_axis is None:
        return list(runs.values()), []
    return grid.split(chosen_axis, list(zip(chosen, runs.values())), folder)


class _Grid:
    """The keys of a grid file; all that they hold is text, as it was written."""

    def __init__(self, path):
        self.path = path
        try:
            found = yaml.load(Path(path).read_text(encoding="utf-8"), _Loader)
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"GRID {path}: cannot be read ({why(error)})") from None
        except yaml.YAMLError as error:
            line = f"line {error.problem_mark.line + 1}: " if getattr(error, "problem_mark", None) else ""
            raise InputError(f"GRID {path}: {line}{getattr(error, 'problem', None) or error}") from None
        except RecursionError:
            raise InputError(f"GRID {path}: is nested too deeply") from None
        self.found = found if isinstance(found, dict) else {}
        for key in self.found.keys() - set(KEYS):
            raise self.error(key, f"unknown; choose from {', '.join(KEYS)}")
        self.texts = {f"{{{name}}}": self._text_of(name, text) for name, text in self._mapping("defaults").items()}
        self.command = self._words("command", self.found.get("command"))
        self.arms = {name: self._words(f"arms: {name}", text, "flags") for name, text in self._mapping("arms").items()}
        self.then = [self._words("then", text) for text in self._list("then")]
        written = repr([self.found.get(key) for key in ("command", "arms", "environment", "axes", "then")])
        for name in self.texts:
            if name not in written:
                raise self.error("defaults", f"nothing has {name}")

    def error(self, key, problem):
        return InputError(f"GRID {self.path}: {key}: {problem}")

    def _place_of(self, flag):
        """Where the file gives a flag outside the axes, None if nowhere."""
        places = {"the command": self.command} | {f"arms: {name}": words for name, words in self.arms.items()}
        return next((place for place, words in places.items() if flag in [word.split("=")[0] for word in words]), None)

    def axes(self):
        """In the order of the file, arms before variables before flags before the seed."""
        axes = [Axis("arm", "arm", tuple(self.arms), True)] if self.arms else []
        axes += [self._axis("environment", name, "variable") for name in self._mapping("environment")]
        axes += [self._axis("axes", name.removeprefix("--"), "flag", name) for name in self._mapping("axes")]
        for axis in axes:
            for value in axis.values:
                # "", "." and ".." would be the sweep's own folder and the one above it.
                if axis.named and not re.search(r"[^\W_]", axis.tag(value)):
                    raise self.error(
                        "arms" if axis.kind == "arm" else axis.name, f"{value!r}: a name needs a letter or a digit"
                    )
            if axis.kind == "flag" and (place := self._place_of(f"--{axis.name}")):
                raise self.error(f"axes: {axis.name}", f"--{axis.name} is in {place} too; leave it out there")
        seeds = [axis for axis in axes if axis.is_seed]
        if not seeds and self.command[0] == "fairseq-train":
            if place := self._place_of("--seed"):
                raise self.error(place.removeprefix("the "), "--seed belongs to the axes, as in seed: [1, 2]")
            seeds = [Axis("seed", "flag", ("1",), True)]
        for value in itertools.chain.from_iterable(axis.values for axis in seeds):
            if not value.isdecimal():
                raise self.error("axes: seed", f"{value!r} is no whole number")
        return [*(axis for axis in axes if not axis.is_seed), *seeds]

    def without_excluded(self, chosen):
        """Of combinations, axis -> value, those that no entry of ``exclude`` describes."""
        known = {axis.name: axis.values for axis in chosen[0]}
        for entry in self._list("exclude"):
            if not isinstance(entry, dict) or not entry:
                raise self.error("exclude", f"{entry!r} is not a mapping such as {{lr: 1e-3, seed: 2}}")
            entry = {
                name.removeprefix("--"): [value] if isinstance(value, str) else value for name, value in entry.items()
            }
            entry = {
                name: [self._filled("exclude", value) if isinstance(value, str) else value for value in values]
                for name, values in entry.items()
            }
            for name, values in entry.items():
                for value in values:
                    if value not in known.get(name, ()):
                        allowed = (
                            ", ".join(known[name]) if name in known else f"no axis; choose from {', '.join(known)}"
                        )
                        raise self.error(
                            "exclude", f"{name}: {value}: {'choose from ' if name in known else ''}{allowed}"
                        )
            chosen = [v for v in chosen if any(value not in entry.get(axis.name, [value]) for axis, value in v.items())]
        return chosen

    def chosen_axis(self, axes):
        """The axis whose value the first seed chooses, None where every value is run with every seed."""
        if "choose" not in self.found:
            if "beyond" in self.found:
                raise self.error("beyond", "needs choose, which says of what")
            return None
        name = self.found["choose"]
        if self.command[0] != "fairseq-train":
            raise self.error("choose", "needs fairseq-train as the command, whose log has the scores")
        several = {axis.name: axis for axis in axes if len(axis.values) > 1 and not axis.is_seed}
        axis = several.get(name.removeprefix("--")) if isinstance(name, str) else None
        if axis is None:
            raise self.error(
                "choose", f"{name or 'nothing'}: no axis of several values; choose from {', '.join(several) or 'none'}"
            )
        if sum(axis.is_seed for axis in axes) > 1:
            raise self.error("choose", "needs one axis of seeds; there is one of flags and one of the environment")
        return axis

    def further(self, axis):
        """How many values beyond those of an axis may be tried for each combination of the others."""
        number = self.found.get("beyond", "0")
        if not isinstance(number, str) or not number.isdecimal():
            raise self.error("beyond", f"{number!r} is no whole number of further values")
        for value in axis.values if int(number) else ():
            if not _is_positive(value):
                raise self.error("beyond", f"{axis.name}: {value} is no number above 0, so that nothing follows it")
        return int(number)

    def split(self, axis, made, folder):
        """From pairs (values, run) those of the first seed, and a choice for each combination of the other axes."""
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
                raise self.error("choose", f"{run.name} has no run of the first seed, {seed.values[0]}, to go by")
        runs = [run for choice in choices.values() for run in choice.first.values()]
        several = [choice for choice in choices.values() if len(choice.first) > 1]
        # Where exclude leaves one value there is nothing to choose.
        runs += [
            run
            for choice in choices.values()
            if choice not in several
            for others in choice.others.values()
            for run in others
        ]
        return runs, several

    def _with_another(self, folder, values, axis, seed, seeds, value):
        """The runs of some seeds with a value of the axis beyond the best one; none where the file excludes it."""
        # In a file that names it, it may be written in another way: 0.016 for 1.6e-2.
        value = next((named for named in axis.values if _same_number(named, value)), value)
        further = [values | {axis: value, seed: each} for each in seeds]
        if value in axis.values:  # no exclude may name another
            further = self.without_excluded(further)
        has_first_seed = further and further[0][seed] == seed.values[0]
        return [self.run(folder, each) for each in further] if has_first_seed else []

    def run(self, out, values):
        """The run of one combination, axis -> value, in a folder of its own below ``out``."""
        name = _name(values)
        folder, words, environment = out / name, list(self.command), {}
        for axis, value in values.items():
            if axis.kind == "variable":
                environment[axis.name] = value
            elif axis.kind == "arm":
                words += self.arms[value]
            elif value != "no":
                words += [f"--{axis.name}"] if value == "yes" else [f"--{axis.name}", value]
        if words[0] == "fairseq-train" and not any(word.split("=")[0] == "--save-dir" for word in words):
            words += ["--save-dir", "{out}"]
        steps, taken, logs = [], [], []
        for command in (words, *self.then):
            program = Path(command[0]).name.removeprefix("fairseq-")
            # States of runs hold the program's name; the log of a subcommand, such as export, has that of the subcommand.
            is_ours = program == "reservoir" and re.fullmatch(r"[a-z][a-z-]*", "".join(command[1:2]))
            taken.append(program)
            logs.append(command[1] if is_ours else program)
            called, log = (f"{of[-1]}-{of.count(of[-1])}" if of.count(of[-1]) > 1 else of[-1] for of in (taken, logs))
            # A log of a script repeats the log of its training; by another ending the report is told not to read it.
            log += ".log" if command[0].startswith("fairseq-") else ".out"
            steps.append(Step(called, tuple(_in(folder, word) for word in command), folder / log))
        return Run(
            name, folder, {variable: _in(folder, value) for variable, value in environment.items()}, tuple(steps)
        )

    def _axis(self, key, name, kind, written=None):
        values = self.found[key][written or name]
        if kind == "variable" and not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            raise self.error(f"{key}: {name!r}", "is no name of a variable: letters, digits and _")
        if kind == "flag" and not re.fullmatch(r"[A-Za-z][\w.-]*", name):
            raise self.error(f"{key}: {name!r}", "is no name of a flag")
        listed = values if isinstance(values, list) else [values]
        if not listed or not all(isinstance(value, str) and value for value in listed):
            raise self.error(f"{key}: {name}", "must be a value or a list of values")
        listed = [self._filled(f"{key}: {name}", value) for value in listed]
        if len(set(listed)) < len(listed):
            raise self.error(f"{key}: {name}", f"{next(v for v in listed if listed.count(v) > 1)} is there twice")
        axis = Axis(name, kind, tuple(listed), isinstance(values, list))
        return Axis(name, kind, axis.values, True) if axis.is_seed else axis

    def _text_of(self, name, text):
        """What {name} in a command stands for: the variable of the environment, where it is set and not empty."""
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) or name == "out":
            raise self.error(
                f"defaults: {name!r}", "is no name of a variable: letters, digits and _; {out} is the folder of a run"
            )
        if not isinstance(text, str):
            raise self.error(f"defaults: {name}", "must be text, in one line")
        for other in _NAMES.findall(text):
            if other != "{out}":
                raise self.error(f"defaults: {name}", f"{other} stands for nothing here; write out what it stands for")
        return os.environ.get(name) or text

    def _filled(self, key, text):
        """``text`` with what each {NAME} of the defaults stands for; {out} is filled in for each run."""
        unknown = [name for name in _NAMES.findall(text) if name not in self.texts and name != "{out}"]
        if unknown:
            allowed = ", ".join(["{out}", *self.texts])
            raise self.error(key, f"{unknown[0]} stands for nothing; choose from {allowed}, or add it to defaults")
        return _NAMES.sub(lambda name: self.texts.get(name[0], name[0]), text)

    def _words(self, key, text, what="a command"):
        if isinstance(text, str):
            text = self._filled(key, text)
        try:
            words = shlex.split(text) if isinstance(text, str) else None
        except ValueError as error:
            raise self.error(key, f"{text!r}: {error}") from None
        if words is None or what == "a command" and not words:
            raise self.error(key, f"must be {what}, in one line")
        return words

    def _mapping(self, key):
        found = self.found.get(key) or {}
        if not isinstance(found, dict):
            raise self.error(key, "must be a mapping, as in {lr: [1e-3, 2e-3]}")
        return found

    def _list(self, key):
        found = self.found.get(key) or []
        if not isinstance(found, list):
            raise self.error(key, "must be a list")
        return found


class _Loader(yaml.BaseLoader):
    """YAML whose values all stay text, so that 1e-3, 0.10 and no are what they look like; a key may be there only once."""

    def construct_mapping(self, node, deep=False):
        seen = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise yaml.constructor.ConstructorError(None, None, "a key is no text", key.start_mark)
            if key.value in seen:
                raise yaml.constructor.ConstructorError(None, None, f"{key.value} is there twice", key.start_mark)
            seen.add(key.value)
        return super().construct_mapping(node, deep)


def _name(values):
    tags = [axis.tag(value) for axis, value in values.items() if axis.named]
    unnamed = all(axis.is_seed for axis in values if axis.named)
    return "-".join(["run", *tags] if unnamed else tags)


def _is_positive(text):
    try:
        return 0 < float(text) < math.inf
    except ValueError:
        return False


def _in(folder, word):
    return word.replace("{out}", str(folder))


def _same_number(one, other):
    try:
        return Decimal(one) == Decimal(other)
    except InvalidOperation:
        return False

"""Group runs into arms: the runs of an arm differ only in their seed. Compute mean and standard deviation over seeds."""

import math
from dataclasses import dataclass

from ...errors import InputError
from .configuration import experiment, same
from .runs import Run


@dataclass
class Arm:
    """Runs with the same configuration and different seeds.

    Attributes:
        name: name of the arm: the name of its first run without the seed.
        runs: the runs.
        missing: seeds that other arms have and this arm lacks.
        remark: note on this arm in the report; "" without a note.
    """

    name: str
    runs: list[Run]
    missing: tuple[int, ...] = ()
    remark: str = ""

    @property
    def seeds(self) -> list[int]:
        return [run.seed for run in self.runs if run.seed is not None]

    @property
    def counted(self) -> list[Run]:
        """The runs that are averaged: all runs that were not interrupted, or all runs if every run was interrupted."""
        return [run for run in self.runs if not run.interrupted] or self.runs

    @property
    def interrupted(self) -> bool:
        """Whether all runs were interrupted."""
        return all(run.interrupted for run in self.runs)


def mean(values: list[float]) -> float:
    return math.fsum(values) / len(values)


def deviation(values: list[float]) -> float | None:
    """Return the sample standard deviation of n values (divisor n - 1); None if n < 2."""
    if len(values) < 2:
        return None
    middle = mean(values)
    return math.sqrt(math.fsum((value - middle) ** 2 for value in values) / (len(values) - 1))


def group(runs: list[Run], ignored: tuple[str, ...] = ()) -> list[Arm]:
    """Group runs into arms, in the order of their first runs.

    Two runs belong to the same arm if their configurations differ only in seeds and paths. Their names, without the seed, must also be
    equal if neither log has a configuration, or if one configuration lacks flags of the other, because another version wrote it. If a
    seed occurs twice in an arm, the arm is split by the names of its runs without the seed.

    Args:
        runs: the runs.
        ignored: configuration keys in which the runs of an arm may differ.
    """
    groups: list[list[Run]] = []
    for run in runs:
        joined = next((members for members in groups if _alike(run, members[0], ignored)), None)
        groups.append([run]) if joined is None else joined.append(run)
    arms = []
    for members in groups:
        seeds = [run.seed for run in members]
        if len(set(seeds)) == len(seeds):
            arms.append(Arm(members[0].stem, members))
        else:
            for stem in dict.fromkeys(run.stem for run in members):
                arms.append(Arm(stem, [run for run in members if run.stem == stem]))
    arms.sort(key=lambda arm: runs.index(arm.runs[0]))
    for arm in arms:
        arm.remark = "; ".join(filter(None, (_version_remark(arm), _ignored_remark(arm, ignored))))
    _number(arms, ignored)
    _name_missing(arms)
    return arms


def _alike(run, other, ignored):
    ours, theirs = experiment(run.configuration, ignored), experiment(other.configuration, ignored)
    if ours.keys() != theirs.keys() or not ours:
        if run.stem != other.stem or bool(ours) != bool(theirs):
            return False
    return all(same(ours[key], theirs[key]) for key in ours.keys() & theirs.keys())


def _version_remark(arm):
    """Return a remark on the flags that only some runs of an arm have; "" if all runs have the same flags."""
    keys = [experiment(run.configuration).keys() for run in arm.runs]
    partly = sorted(set().union(*keys) - set.intersection(*map(set, keys)))
    if not partly:
        return ""
    more = f" and {len(partly) - 2} more" if len(partly) > 2 else ""
    return f"its runs were trained by different versions: some lack {', '.join(partly[:2])}{more}"


def _ignored_remark(arm, ignored):
    """Return a remark on the ignored keys whose values differ within an arm; "" if no value differs."""
    remarks = []
    for key in ignored:
        values = []
        for value in (run.configuration[key] for run in arm.runs if key in run.configuration):
            if not any(same(value, known) for known in values):
                values.append(value)
        if len(values) > 1:
            remarks.append(f"its runs differ in {key}: {', '.join(map(str, values))}")
    return "; ".join(remarks)


def find_arm(name: str | None, arms: list[Arm], flag: str = "--baseline") -> Arm:
    """Find an arm by its own name or by the name of one of its runs. If ``name`` is None, return the first arm.

    Args:
        name: the name, or None.
        arms: the arms.
        flag: the option that contains the name, for the error message.

    Raises:
        InputError: no arm has this name.
    """
    if name is None:
        return arms[0]
    for arm in arms:
        if name in (arm.name, *(run.name for run in arm.runs)):
            return arm
    raise InputError(f"{flag} {name}: not the name of an arm; choose from {', '.join(arm.name for arm in arms)}")


def _number(arms, ignored):
    """Number arms that have the same name, and add remarks on the flags in which they differ from the first one."""
    for name in {arm.name for arm in arms}:
        first, *others = [arm for arm in arms if arm.name == name]
        for number, arm in enumerate(others, start=2):
            ours, theirs = (experiment(one.runs[0].configuration, ignored) for one in (arm, first))
            differing = [key for key in {**theirs, **ours} if not same(theirs.get(key), ours.get(key))]
            arm.name = f"{name} ({number})"
            arm.remark = f"not part of the arm {name}: " + (
                ", ".join(f"{key} is {ours.get(key)} instead of {theirs.get(key)}" for key in differing[:3])
                or "the same seed in another folder"
            )
            if differing and not set(arm.seeds) & set(first.seeds):
                flags = " ".join(dict.fromkeys(f"--ignore {key.rpartition('.')[2]}" for key in differing))
                arm.remark += f"; add {flags} to join both arms"


def _name_missing(arms):
    wanted = {seed for arm in arms for seed in arm.seeds}
    for arm in arms:
        if arm.seeds:
            arm.missing = tuple(sorted(wanted - set(arm.seeds)))

"""Group runs into arms, which differ only in their seed; mean and standard deviation over seeds."""

import math
from dataclasses import dataclass

from ...errors import InputError
from .configuration import experiment, same
from .runs import Run


@dataclass
class Arm:
    """Runs of one configuration, one per seed. ``missing`` are seeds that other arms have, ``remark`` is a note for the reader."""

    name: str
    runs: list[Run]
    missing: tuple[int, ...] = ()
    remark: str = ""

    @property
    def seeds(self) -> list[int]:
        return [run.seed for run in self.runs if run.seed is not None]

    @property
    def counted(self) -> list[Run]:
        """The runs that count in means: the finished runs, or all runs if none has finished."""
        return [run for run in self.runs if not run.interrupted] or self.runs

    @property
    def interrupted(self) -> bool:
        """Whether all runs were interrupted."""
        return all(run.interrupted for run in self.runs)


def mean(values: list[float]) -> float:
    return math.fsum(values) / len(values)


def deviation(values: list[float]) -> float | None:
    """Return the sample standard deviation, with n - 1; None for one value."""
    if len(values) < 2:
        return None
    middle = mean(values)
    return math.sqrt(math.fsum((value - middle) ** 2 for value in values) / (len(values) - 1))


def group(runs: list[Run], ignored: tuple[str, ...] = ()) -> list[Arm]:
    """Group runs into arms, in the order of their first run.

    Runs are one arm if their configurations differ only in seeds and paths. Runs without a configuration in the log are one arm if
    their folders differ only in the seed at the end. Another version may lack a flag; such runs are one arm unless the folders' names
    differ. If a seed occurs twice, folders' names separate the arms.

    Args:
        runs: the runs.
        ignored: keys of the configuration in which runs of one arm may differ.
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
        arm.remark = "; ".join(filter(None, (_versions(arm), _pooled(arm, ignored))))
    _number(arms, ignored)
    _name_missing(arms)
    return arms


def _alike(run, other, ignored):
    ours, theirs = experiment(run.configuration, ignored), experiment(other.configuration, ignored)
    if ours.keys() != theirs.keys() or not ours:
        if run.stem != other.stem or bool(ours) != bool(theirs):
            return False
    return all(same(ours[key], theirs[key]) for key in ours.keys() & theirs.keys())


def _versions(arm):
    """Return a remark on flags that only some runs of an arm have; "" without such flags."""
    keys = [experiment(run.configuration).keys() for run in arm.runs]
    partly = sorted(set().union(*keys) - set.intersection(*map(set, keys)))
    if not partly:
        return ""
    more = f" and {len(partly) - 2} more" if len(partly) > 2 else ""
    return f"seeds trained by different versions: only some have {', '.join(partly[:2])}{more}"


def _pooled(arm, ignored):
    """Return a remark on ignored keys that differ within an arm; "" without such keys."""
    remarks = []
    for key in ignored:
        values = []
        for value in (run.configuration[key] for run in arm.runs if key in run.configuration):
            if not any(same(value, known) for known in values):
                values.append(value)
        if len(values) > 1:
            remarks.append(f"its seeds differ in {key}: {', '.join(map(str, values))}")
    return "; ".join(remarks)


def find_arm(name: str | None, arms: list[Arm], flag: str = "--baseline") -> Arm:
    """Return the arm of this name, or the arm of the run of this name; the first arm without a name.

    Raises:
        InputError: no arm has this name.
    """
    if name is None:
        return arms[0]
    for arm in arms:
        if name in (arm.name, *(run.name for run in arm.runs)):
            return arm
    raise InputError(f"{flag} {name}: the arms are {', '.join(arm.name for arm in arms)}")


def _number(arms, ignored):
    """Number arms of the same name, and add a remark on the flags in which they differ."""
    for name in {arm.name for arm in arms}:
        first, *others = [arm for arm in arms if arm.name == name]
        for number, arm in enumerate(others, start=2):
            ours, theirs = (experiment(one.runs[0].configuration, ignored) for one in (arm, first))
            differing = [key for key in {**theirs, **ours} if not same(theirs.get(key), ours.get(key))]
            arm.name = f"{name} ({number})"
            arm.remark = f"not of the arm {name}: " + (
                ", ".join(f"{key} is {ours.get(key)} instead of {theirs.get(key)}" for key in differing[:3])
                or "the same seed in another folder"
            )
            if differing and not set(arm.seeds) & set(first.seeds):
                flags = " ".join(dict.fromkeys(f"--ignore {key.rpartition('.')[2]}" for key in differing))
                arm.remark += f"; one arm with {flags}"


def _name_missing(arms):
    wanted = {seed for arm in arms for seed in arm.seeds}
    for arm in arms:
        if arm.seeds:
            arm.missing = tuple(sorted(wanted - set(arm.seeds)))

"""Arms: runs that differ only in their seed; mean and deviation over seeds."""

import math
from dataclasses import dataclass

from ...errors import InputError
from .configuration import experiment, same
from .runs import Run


@dataclass
class Arm:
    """Runs of one configuration, a run per seed; ``remark`` says what a reader must know about them."""

    name: str
    runs: list[Run]
    missing: tuple[int, ...] = ()
    remark: str = ""

    @property
    def seeds(self) -> list[int]:
        return [run.seed for run in self.runs if run.seed is not None]

    @property
    def counted(self) -> list[Run]:
        """The runs that means are over: those that were not interrupted, or all if every one was."""
        return [run for run in self.runs if not run.interrupted] or self.runs

    @property
    def interrupted(self) -> bool:
        """Whether every run was."""
        return all(run.interrupted for run in self.runs)


def mean(values: list[float]) -> float:
    return math.fsum(values) / len(values)


def deviation(values: list[float]) -> float | None:
    """The sample's standard deviation, with n - 1; None for one value."""
    if len(values) < 2:
        return None
    middle = mean(values)
    return math.sqrt(math.fsum((value - middle) ** 2 for value in values) / (len(values) - 1))


def group(runs: list[Run], ignored: tuple[str, ...] = ()) -> list[Arm]:
    """Arms in the order of their first run; ``ignored`` are keys of the configuration that do not tell arms apart.

    Runs are one arm if their configurations differ only in seeds and paths; without a configuration in the log, if their folders
    differ only in the seed at the end. A flag that only one of them knows, because the other was trained by another version,
    tells them apart only if the folders' names do, too. Where the same seed comes twice, names tell arms apart as well.
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
    _tell_apart(arms, ignored)
    _name_missing(arms)
    return arms


def _alike(run, other, ignored):
    ours, theirs = experiment(run.configuration, ignored), experiment(other.configuration, ignored)
    if ours.keys() != theirs.keys() or not ours:
        if run.stem != other.stem or bool(ours) != bool(theirs):
            return False
    return all(same(ours[key], theirs[key]) for key in ours.keys() & theirs.keys())


def _versions(arm):
    """What to say of flags that only some of an arm's runs know."""
    keys = [experiment(run.configuration).keys() for run in arm.runs]
    partly = sorted(set().union(*keys) - set.intersection(*map(set, keys)))
    if not partly:
        return ""
    more = f" and {len(partly) - 2} more" if len(partly) > 2 else ""
    return f"seeds trained by different versions: only some know {', '.join(partly[:2])}{more}"


def _pooled(arm, ignored):
    """What to say of ignored keys that differ within an arm."""
    said = []
    for key in ignored:
        values = []
        for value in (run.configuration[key] for run in arm.runs if key in run.configuration):
            if not any(same(value, known) for known in values):
                values.append(value)
        if len(values) > 1:
            said.append(f"its seeds differ in {key}: {', '.join(map(str, values))}")
    return "; ".join(said)


def find_arm(name: str | None, arms: list[Arm], flag: str = "--baseline") -> Arm:
    """The arm of this name, or that a run of this name is in; the first if none is given.

    Raises:
        InputError: there is no such arm.
    """
    if name is None:
        return arms[0]
    for arm in arms:
        if name in (arm.name, *(run.name for run in arm.runs)):
            return arm
    raise InputError(f"{flag} {name}: the arms are {', '.join(arm.name for arm in arms)}")


def _tell_apart(arms, ignored):
    """Folders of one name but with other flags are other arms: number them and say where they differ."""
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

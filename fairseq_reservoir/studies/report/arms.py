"""Group runs into arms: the runs of an arm differ only in their seed. Compute mean and standard deviation over seeds."""

import math
from dataclasses import dataclass

from ...errors import InputError
from .configuration import experiment, in_order, same, setting, without_seed
from .names import without_value
from .runs import Run


@dataclass
class Arm:
    """Runs with the same configuration and different seeds.

    Attributes:
        name: name of the arm: the name of its first run without the seed.
        runs: the runs.
        missing: seeds of other arms for which this arm has no run.
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
    def seed_count(self) -> int:
        """Number of different seeds of the runs that are averaged. With ``--ignore``, several runs may have the same seed."""
        seeds = [run.seed for run in self.counted]
        return len(seeds) if None in seeds else len(set(seeds))

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

    The runs of an arm differ only in seeds, paths and the ignored keys (see ``differ_only_in``). If two runs have the same seed and the
    same values of the ignored keys, the arm is split. Runs then stay in one arm if ``bare`` returns the same name for them.

    Args:
        runs: the runs.
        ignored: configuration keys in which the runs of an arm may differ.
    """
    groups: list[list[Run]] = []
    for run in runs:
        joined = next((members for members in groups if differ_only_in(run, members[0], ignored)), None)
        groups.append([run]) if joined is None else joined.append(run)
    arms = []
    for members in groups:
        distinct = {(run.seed, *(str(setting(run.configuration, key)) for key in ignored)) for run in members}
        if len(distinct) == len(members):
            names = {bare(run, ignored) for run in members}
            arms.append(Arm(names.pop() if len(names) == 1 else members[0].stem, members))
        else:
            for name in dict.fromkeys(bare(run, ignored) for run in members):
                arms.append(Arm(name, [run for run in members if bare(run, ignored) == name]))
    arms.sort(key=lambda arm: runs.index(arm.runs[0]))
    for arm in arms:
        arm.remark = "; ".join(filter(None, (_version_remark(arm), _ignored_remark(arm, ignored))))
    _number(arms, ignored)
    name_missing(arms)
    return arms


def series_of(arms: list[Arm], keys: tuple[str, ...]) -> list[list[Arm]]:
    """Group arms that differ only in the ``keys`` (see ``differ_only_in``). Groups are in the order of their first arms."""
    found: list[list[Arm]] = []
    for arm in arms:
        joined = next((others for others in found if differ_only_in(arm.runs[0], others[0].runs[0], keys)), None)
        found.append([arm]) if joined is None else joined.append(arm)
    return found


def differ_only_in(run: Run, other: Run, keys: tuple[str, ...]) -> bool:
    """Return whether two runs differ only in seeds, paths and the ``keys`` of their configurations.

    Paths of checkpoints and embeddings may differ in the seed: each seed may start from its own pretrained model.

    In two cases, ``bare`` must also return the same name for both runs. In the first case, neither log has a configuration. In the second
    case, the configurations do not have the same flags, because different versions of fairseq or of this plugin wrote them.
    """
    ours, theirs = experiment(run.configuration, keys), experiment(other.configuration, keys)
    if ours.keys() != theirs.keys() or not ours:
        if bare(run, keys) != bare(other, keys) or bool(ours) != bool(theirs):
            return False
    return all(
        same(without_seed(ours[key], run.seed), without_seed(theirs[key], other.seed))
        for key in ours.keys() & theirs.keys()
    )


def bare(run: Run, keys: tuple[str, ...]) -> str:
    """Return the name of a run without the seed and the values of the ``keys``.

    For example, the run LTLTL-lr4e-3-1 and the keys ("optimization.lr",) give LTLTL.
    """
    name = run.stem
    for key in keys:
        name = without_value(name, key, setting(run.configuration, key))
    return name


def _version_remark(arm):
    """Return a remark on the flags that only some runs of an arm have; "" if all runs have the same flags."""
    keys = [experiment(run.configuration).keys() for run in arm.runs]
    partly = sorted(set().union(*keys) - set.intersection(*map(set, keys)))
    if not partly:
        return ""
    more = f" and {len(partly) - 2} more" if len(partly) > 2 else ""
    return f"its runs were trained with different versions of fairseq or the plugin: some configurations lack {', '.join(partly[:2])}{more}"


def _ignored_remark(arm, ignored):
    """Return a remark that lists the ignored keys with different values in an arm; "" if there are none."""
    remarks = []
    for key in ignored:
        values: list[object] = []
        for value in (setting(run.configuration, key) for run in arm.runs if key in run.configuration):
            if not any(same(value, known) for known in values):
                values.append(value)
        if len(values) > 1:
            shown = ", ".join(map(str, sorted(values, key=in_order)))
            remarks.append(f"runs differ in {key} ({shown})")
    return "; ".join(remarks)


def find_arm(name: str | None, arms: list[Arm], flag: str = "--baseline") -> Arm:
    """Find an arm by its name or by the name of one of its runs, with or without the seed. If ``name`` is None, return the first arm.

    Args:
        name: the name, or None.
        arms: the arms.
        flag: the option that contains the name, for the error message.

    Raises:
        InputError: no arm has this name.
    """
    if name is None:
        return arms[0]
    by_run = {alias: arm for arm in reversed(arms) for run in arm.runs for alias in (run.name, run.stem)}
    by_name = by_run | {arm.name: arm for arm in reversed(arms)}
    if name in by_name:
        return by_name[name]
    raise InputError(f"{flag} {name}: no arm has this name; choose from {', '.join(arm.name for arm in arms)}")


def _number(arms, ignored):
    """Number arms that have the same name. Add remarks that list the flags in which they differ from the first arm of this name."""
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


def name_missing(arms: list[Arm]) -> None:
    """Set the missing seeds of each arm: the seeds that other arms have and this arm lacks."""
    wanted = {seed for arm in arms for seed in arm.seeds}
    for arm in arms:
        if arm.seeds:
            arm.missing = tuple(sorted(wanted - set(arm.seeds)))

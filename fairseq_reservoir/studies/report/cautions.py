"""Warnings of a report, grouped by topic. The page lists the warnings at its end, and has the number of warnings at its top."""

from typing import NamedTuple

from . import exports, run_files
from .arms import series_of
from .cells import listed, plural
from .measures import Study, spread

# These scores depend on the dictionary and the text, so they cannot be compared between datasets.
_DATA_DEPENDENT = ("loss", "nll_loss", "ppl")


class Caution(NamedTuple):
    """Warnings about one topic: the topic's title, and a line for each warning."""

    title: str
    lines: list[str]


def cautions(study: Study) -> list[Caution]:
    """Return all warnings of a report, without repeats."""
    kinds = {
        "Runs left out": [f"{run.name}: {why}" for run, why in study.skipped],
        "Unfinished runs": _unfinished(study),
        "Resumed runs": _resumed(study),
        "Seeds": _seeds(study),
        "Arms": [*_of_same([(arm.remark, arm.name) for arm in study.arms if arm.remark]), *_repeated(study)],
        "Choice": _choice(study),
        "Files that cannot be read": _unreadable(study),
        "Test scores": _of_same([(remark, run.name) for run in study.runs for remark in study.tests[run.name].remarks]),
        "Comparability": _other_losses(study),
        "Times": [*_late(study), *_uneven_times(study), *_rounded_times(study)],
        "FLOPs": _without_flops(study),
        "Target": _easy_target(study),
    }
    return [Caution(title, lines) for title, lines in kinds.items() if lines]


def _unfinished(study):
    found = []
    for arm in study.arms:
        left_out = "" if arm.interrupted else ", not in the means"
        found += [
            f"{arm.name}, seed {run.seed}: {run.state}{left_out * run.interrupted}"
            for run in arm.runs
            if run.state != "finished"
        ]
    return found


def _resumed(study):
    times = {1: "once", 2: "twice"}
    found = [
        f"{arm.name}, seed {run.seed} ({times.get(run.resumes, f'{run.resumes} times')})"
        for arm in study.arms
        for run in arm.runs
        if run.resumes
    ]
    return [f"{listed(found)}."] if found else []


def _seeds(study):
    """Return one line for each group of arms that lack the same seeds."""
    lacking: dict[tuple[int, ...], list[str]] = {}
    for arm in study.arms:
        lacking.setdefault(arm.missing, []).append(arm.name)
    lacking.pop((), None)
    found = [
        f"{'Seed' if len(seeds) == 1 else 'Seeds'} {listed([str(seed) for seed in seeds])}"
        f" {'is' if len(seeds) == 1 else 'are'} missing: {listed(names, 5)} ({len(names)} of {plural(len(study.arms), 'arm')})."
        for seeds, names in lacking.items()
    ]
    if all(len(arm.runs) == 1 for arm in study.arms) and len(study.arms) > 1:
        found.append("Each arm has only one seed: the results may change with a different seed.")
    return found


def _choice(study):
    """Warn of uncertain choices of ``--choose``. Without ``--choose``, suggest this flag if arms differ only in the learning rate."""
    if study.search is None:
        rates = ("optimization.lr",)
        open_ = study.against not in rates and any(len(arms) > 1 for arms in series_of(study.arms, rates))
        return ["Some arms differ only in lr. --choose lr shows only the best arm of each such group."] * open_
    leaf, choices = study.search.leaf, study.search.choices
    at_end = [f"{choice.arm.name} ({choice.value})" for choice in choices if choice.at_end]
    single = [choice.arm.name for choice in choices if len(choice.tried) < 2]
    found = [
        f"The chosen {leaf} is the smallest or the largest tried value, so a value beyond it may be better: {listed(at_end)}."
    ] * bool(at_end)
    return found + [f"Only one value of {leaf} was tried: {listed(single)}."] * bool(single)


def _unreadable(study):
    found = [
        f"{run.name}: the configuration at the beginning of its log cannot be read"
        for run in study.runs
        if run.log.is_spoiled
    ]
    for run in study.runs:
        files = run_files.faults(run.folder, "state", *exports.LOGS, "*.safetensors", "checkpoint_best.pt")
        found += [f"{run.name}: {fault}" for fault in (*study.tests[run.name].faults, *files)]
    return found


def _repeated(study):
    """Warn of arms in which ``--ignore`` has merged several runs with the same seed."""
    names = [arm.name for arm in study.arms if arm.seed_count < len(arm.counted)]
    return [
        f"Some runs of an arm have the same seed, but count as different seeds in means and intervals: {listed(names, 5)}."
    ] * bool(names)


def _of_same(remarks):
    """Group pairs (remark, name) by remark. Return a line for each remark. The line begins with the names that have the remark."""
    names: dict[str, list[str]] = {}
    for remark, name in remarks:
        names.setdefault(remark, []).append(name)
    return [f"{listed(those, 5)}: {remark}." for remark, those in names.items()]


def _other_losses(study):
    """Warn of losses that cannot be compared, because the runs have different criteria, dictionaries or texts."""
    criteria = {str({k: v for k, v in run.configuration.items() if k.startswith("criterion.")}) for run in study.runs}
    found = []
    if study.metric.name == "loss" and len(criteria) > 1:
        found.append("These runs were trained with different criteria, so their losses cannot be compared.")
    data = sorted(
        {
            f"{run.configuration['task.data']} ({run.configuration.get('dataset.valid_subset', 'valid')})"
            for run in study.runs
            if "task.data" in run.configuration
        }
    )
    if study.metric.name in _DATA_DEPENDENT and len(data) > 1:
        found.append(
            f"These runs were trained on different data: {listed(data, 5)}. Their losses can be compared only if the dictionary and the"
            " validation text are the same."
        )
    return found


def _without_flops(study):
    """Return lines that name the arms without FLOPs and the reason. If no log has a slot table, return [], because no run used this plugin.

    The slot table is the table of layers, parameters and FLOPs that the plugin prints into the log.
    """
    logs = {arm.name: [run.log for run in arm.runs] for arm in study.arms}
    if not any(log.table for of_arm in logs.values() for log in of_arm):
        return []
    reasons = {
        "has no slot table, because the plugin prints it only for its own architectures; to get FLOPs for a plain transformer, train it"
        " with --arch reservoir_... and a plan that has only L layers": False,
        "was written by an old version of the plugin, whose slot table has no line for the backward pass": True,
    }
    found = []
    for reason, table in reasons.items():
        lacking = {
            name: sum(log.mflop is None and log.table is table for log in of_arm) for name, of_arm in logs.items()
        }
        counted = [(name, n, len(logs[name])) for name, n in lacking.items() if n]
        names = [name if n == of else f"{name} ({n} of {of} seeds)" for name, n, of in counted]
        found += [f"No FLOPs for {listed(names)}: the log {reason}."] * bool(names)
    return found


def _late(study):
    late = [run.name for run in study.runs if run.clock.begins_at]
    if not late:
        return []
    subject = "This log begins" if len(late) == 1 else "These logs begin"
    return [
        f"{subject} in the middle of training: {listed(late)}. The training time and the tokens before this point are unknown and not"
        " counted; the number of updates is complete."
    ]


def _uneven_times(study):
    """Return a line that names the arms in which seeds trained at different speeds, for example on different machines."""
    found = []
    for arm in study.arms:
        rates = sorted(run.clock.rate for run in arm.counted if run.clock.rate)
        if rates and rates[-1] > 1.2 * rates[0]:
            found.append(f"{arm.name} ({rates[0]:.3g} to {rates[-1]:.3g} s per update)")
    return [f"The seeds of these arms differ in speed, so their times are unreliable: {listed(found)}."] * bool(found)


def _rounded_times(study):
    """Warn if epochs are so short that fairseq's rounding to whole seconds causes an error above 10 %."""
    worst = max((run.clock.rounding for arm in study.arms for run in arm.counted), default=0.0)
    if worst <= 0.1:
        return []
    return [
        "fairseq logs the training time of an epoch in whole seconds. These epochs are so short that the minutes of training may be"
        f' wrong by {100 * worst:.0f} %. The minutes "in all" in the table of runs do not have this error.'
    ]


def _easy_target(study):
    """Warn if a very bad run determines the common target. All other runs then reach the target almost immediately."""
    best = spread([one.best for one in study.measured_runs(study.baseline)]).mean
    if study.options.target is not None or not study.metric.far_worse(study.target, best):
        return []
    return [
        f"The common target, {study.target:g}, is the best score of the worst run. This is too easy, because {study.baseline.name}"
        f" reaches {best:g}. Set a better target with --target."
    ]

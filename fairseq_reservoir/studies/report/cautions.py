"""Cautions that a report prints before its first number."""

from . import contents, exports, run_files
from .measures import Study, spread
from .runs import Run

# Scores that are of a dictionary and a text, and not comparable between two.
OF_THE_DATA = ("loss", "nll_loss", "ppl")


def cautions(study: Study) -> list[str]:
    """One sentence each, the runs first."""
    said = [f"{arm.name}: {remark}" for arm in study.arms if (remark := contents.remarks(arm, with_missing=False))]
    for seed in sorted({seed for arm in study.arms for seed in arm.missing}):
        arms = [arm.name for arm in study.arms if seed in arm.missing]
        shown = ", ".join(arms) if len(arms) <= 5 else f"{len(arms)} of {len(study.arms)} arms"
        said.append(f"seed {seed} is missing: {shown}")
    said += [f"{run.name}: {why}, left out" for run, why in study.skipped]
    used = [run for arm in study.arms for run in arm.runs]
    said += [
        f"{run.name}: the configuration that its log begins with cannot be read" for run in used if run.log.is_spoiled
    ]
    said += [f"{run.name}: {fault}" for run in used for fault in faults(study, run)]
    late = [run.name for arm in study.arms for run in arm.runs if run.clock.begins_at]
    if late:
        said.append(f"Logs that begin in the middle of training, without the time before that: {', '.join(late)}.")
    criteria = {
        str({k: v for k, v in run.configuration.items() if k.startswith("criterion.")})
        for arm in study.arms
        for run in arm.runs
    }
    if study.metric.name == "loss" and len(criteria) > 1:
        said.append("These runs were trained with different criteria: their losses are not the same quantity.")
    data = sorted(
        {
            f"{run.configuration['task.data']} ({run.configuration.get('dataset.valid_subset', 'valid')})"
            for arm in study.arms
            for run in arm.runs
            if "task.data" in run.configuration
        }
    )
    if study.metric.name in OF_THE_DATA and len(data) > 1:
        shown = ", ".join(data[:4]) + (", ..." if len(data) > 4 else "")
        said.append(
            f"These runs were trained on different data: {shown}. Their losses are the same quantity only where dictionary and validation"
            " text are the same."
        )
    said += [*_without_flops(study), *_uneven_times(study), *_rounded_times(study), *_easy_target(study)]
    if all(len(arm.runs) == 1 for arm in study.arms) and len(study.arms) > 1:
        said.append("One seed per arm: nothing here says what another seed would give.")
    return said


def faults(study: Study, run: Run) -> list[str]:
    """A line for each file in the folder of a run that cannot be read."""
    test = study.tests.get(run.name)
    files = run_files.faults(run.folder, "state", *exports.LOGS, "*.safetensors", "checkpoint_best.pt")
    return [*(test.faults if test else ()), *files]


def _without_flops(study):
    """Which arms lack FLOPs, and why; nothing where no log has a slot table, as of trainings without the plugin."""
    logs = {arm.name: [run.log for run in arm.runs] for arm in study.arms}
    if not any(log.table for of_arm in logs.values() for log in of_arm):
        return []
    reasons = {
        "has no slot table, which the plugin prints of its own architectures (a plan of only L is fairseq's transformer)": False,
        "is from before the slot table had a line on the backward pass": True,
    }
    said = []
    for reason, table in reasons.items():
        lacking = {
            name: sum(log.mflop is None and log.table is table for log in of_arm) for name, of_arm in logs.items()
        }
        counted = [(name, n, len(logs[name])) for name, n in lacking.items() if n]
        names = [name if n == of else f"{name} ({n} of {of} seeds)" for name, n, of in counted]
        said += [f"No FLOPs of {', '.join(names)}: the log {reason}."] * bool(names)
    return said


def _uneven_times(study):
    """Arms whose seeds were trained at different speeds: on another machine, or beside other work."""
    said = []
    for arm in study.arms:
        rates = sorted(run.clock.rate for run in arm.counted if run.clock.rate)
        if rates and rates[-1] > 1.2 * rates[0]:
            took = f"{rates[0]:.3g} to {rates[-1]:.3g} s per update"
            said.append(f"{arm.name}: its seeds took from {took}: do not trust its times.")
    return said


def _rounded_times(study):
    """Whether epochs are so short that whole seconds of them say little."""
    worst = max((run.clock.rounding for arm in study.arms for run in arm.counted), default=0.0)
    if worst <= 0.1:
        return []
    return [
        "fairseq logs the training time of an epoch in whole seconds, and the epochs here are so short"
        f" that minutes may be off by {100 * worst:.0f} %; minutes in all are not."
    ]


def _easy_target(study):
    """Whether a hopeless run sets the common target, so that the others reach it at once."""
    best = spread([one.best for one in study.of(study.baseline)]).mean
    if study.target_given or not study.metric.far_worse(study.target, best):
        return []
    return [
        f"The common target, {study.target:g}, is the best score of the worst run, and {study.baseline.name} has {best:g}:"
        " --target names one that says more."
    ]

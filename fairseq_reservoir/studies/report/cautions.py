"""Warnings that a report prints before its first number."""

from . import contents, exports, run_files
from .measures import Study, spread
from .runs import Run

# Scores that depend on dictionary and text, so they cannot be compared across datasets.
OF_THE_DATA = ("loss", "nll_loss", "ppl")


def cautions(study: Study) -> list[str]:
    """Return the warnings, one sentence each, those about runs first."""
    found = [f"{arm.name}: {remark}" for arm in study.arms if (remark := contents.remarks(arm, with_missing=False))]
    for seed in sorted({seed for arm in study.arms for seed in arm.missing}):
        arms = [arm.name for arm in study.arms if seed in arm.missing]
        shown = ", ".join(arms) if len(arms) <= 5 else f"{len(arms)} of {len(study.arms)} arms"
        found.append(f"seed {seed} is missing: {shown}")
    found += [f"{run.name}: {why}, left out" for run, why in study.skipped]
    used = [run for arm in study.arms for run in arm.runs]
    found += [
        f"{run.name}: the configuration at the beginning of its log cannot be read"
        for run in used
        if run.log.is_spoiled
    ]
    found += [f"{run.name}: {fault}" for run in used for fault in faults(study, run)]
    late = [run.name for arm in study.arms for run in arm.runs if run.clock.begins_at]
    if late:
        found.append(f"Logs that begin in the middle of training and lack the time before that: {', '.join(late)}.")
    criteria = {
        str({k: v for k, v in run.configuration.items() if k.startswith("criterion.")})
        for arm in study.arms
        for run in arm.runs
    }
    if study.metric.name == "loss" and len(criteria) > 1:
        found.append("These runs were trained with different criteria, so their losses cannot be compared.")
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
        found.append(
            f"These runs were trained on different data: {shown}. Their losses can be compared only if dictionary and validation"
            " text are the same."
        )
    found += [*_without_flops(study), *_uneven_times(study), *_rounded_times(study), *_easy_target(study)]
    if all(len(arm.runs) == 1 for arm in study.arms) and len(study.arms) > 1:
        found.append("One seed per arm: results may differ with another seed.")
    return found


def faults(study: Study, run: Run) -> list[str]:
    """Return a line for each file of a run that cannot be read."""
    test = study.tests.get(run.name)
    files = run_files.faults(run.folder, "state", *exports.LOGS, "*.safetensors", "checkpoint_best.pt")
    return [*(test.faults if test else ()), *files]


def _without_flops(study):
    """Name the arms without FLOPs and the reason, unless no log has a slot table (trainings without the plugin)."""
    logs = {arm.name: [run.log for run in arm.runs] for arm in study.arms}
    if not any(log.table for of_arm in logs.values() for log in of_arm):
        return []
    reasons = {
        "has no slot table; the plugin prints it for its own architectures only (a plan of only L is fairseq's transformer)": False,
        "is of a version whose slot table has no line on the backward pass": True,
    }
    found = []
    for reason, table in reasons.items():
        lacking = {
            name: sum(log.mflop is None and log.table is table for log in of_arm) for name, of_arm in logs.items()
        }
        counted = [(name, n, len(logs[name])) for name, n in lacking.items() if n]
        names = [name if n == of else f"{name} ({n} of {of} seeds)" for name, n, of in counted]
        found += [f"No FLOPs of {', '.join(names)}: the log {reason}."] * bool(names)
    return found


def _uneven_times(study):
    """Name arms with seeds of different speed, such as on other machines or beside other work."""
    found = []
    for arm in study.arms:
        rates = sorted(run.clock.rate for run in arm.counted if run.clock.rate)
        if rates and rates[-1] > 1.2 * rates[0]:
            took = f"{rates[0]:.3g} to {rates[-1]:.3g} s per update"
            found.append(f"{arm.name}: its seeds took from {took}: do not trust its times.")
    return found


def _rounded_times(study):
    """Warn if epochs are so short that rounding to whole seconds matters."""
    worst = max((run.clock.rounding for arm in study.arms for run in arm.counted), default=0.0)
    if worst <= 0.1:
        return []
    return [
        "fairseq logs the training time of an epoch in whole seconds. The epochs here are so short that minutes may be off by"
        f" {100 * worst:.0f} %; minutes in all are not affected."
    ]


def _easy_target(study):
    """Warn if a very bad run sets the common target, which the others then reach at once."""
    best = spread([one.best for one in study.measured_runs(study.baseline)]).mean
    if study.options.target is not None or not study.metric.far_worse(study.target, best):
        return []
    return [
        f"The common target, {study.target:g}, is the best score of the worst run, and {study.baseline.name} has {best:g}:"
        " set a better one with --target."
    ]

"""Warnings at the top of a report, above its first number."""

from . import contents, exports, run_files
from .measures import Study, spread
from .runs import Run

# These scores depend on the dictionary and the text, so they cannot be compared between datasets.
_DATA_DEPENDENT = ("loss", "nll_loss", "ppl")


def cautions(study: Study) -> list[str]:
    """Return the warnings. Warnings about single arms, seeds and runs come first."""
    found = [f"{arm.name}: {remark}" for arm in study.arms if (remark := contents.remarks(arm, with_missing=False))]
    for seed in sorted({seed for arm in study.arms for seed in arm.missing}):
        arms = [arm.name for arm in study.arms if seed in arm.missing]
        shown = ", ".join(arms) if len(arms) <= 5 else f"{len(arms)} of {len(study.arms)} arms"
        found.append(f"seed {seed} is missing: {shown}")
    found += [f"{run.name}: {why}; this run is omitted" for run, why in study.skipped]
    used = [run for arm in study.arms for run in arm.runs]
    found += [
        f"{run.name}: the configuration at the beginning of its log cannot be read"
        for run in used
        if run.log.is_spoiled
    ]
    found += [f"{run.name}: {fault}" for run in used for fault in faults(study, run)]
    late = [run.name for arm in study.arms for run in arm.runs if run.clock.begins_at]
    if late:
        found.append(
            f"These logs begin in the middle of training and lack the earlier training time: {', '.join(late)}."
        )
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
    if study.metric.name in _DATA_DEPENDENT and len(data) > 1:
        shown = ", ".join(data[:4]) + (", ..." if len(data) > 4 else "")
        found.append(
            f"These runs were trained on different data: {shown}. Their losses can be compared only if the dictionary and the"
            " validation text are the same."
        )
    found += [*_without_flops(study), *_uneven_times(study), *_rounded_times(study), *_easy_target(study)]
    if all(len(arm.runs) == 1 for arm in study.arms) and len(study.arms) > 1:
        found.append("Each arm has only one seed: another seed may change the results.")
    return found


def faults(study: Study, run: Run) -> list[str]:
    """Return a line for each unreadable file in the folder of a run."""
    test = study.tests.get(run.name)
    files = run_files.faults(run.folder, "state", *exports.LOGS, "*.safetensors", "checkpoint_best.pt")
    return [*(test.faults if test else ()), *files]


def _without_flops(study):
    """Name the arms without FLOPs, and the reason. If no log has a slot table, the runs did not use this plugin: return [].

    The slot table is the table of layers, parameters and FLOPs that the plugin prints into the log.
    """
    logs = {arm.name: [run.log for run in arm.runs] for arm in study.arms}
    if not any(log.table for of_arm in logs.values() for log in of_arm):
        return []
    reasons = {
        "has no slot table, because the plugin prints it only for its own architectures; train a transformer as a plan of only L": False,
        "was written by an old version, and its slot table has no line on the backward pass": True,
    }
    found = []
    for reason, table in reasons.items():
        lacking = {
            name: sum(log.mflop is None and log.table is table for log in of_arm) for name, of_arm in logs.items()
        }
        counted = [(name, n, len(logs[name])) for name, n in lacking.items() if n]
        names = [name if n == of else f"{name} ({n} of {of} seeds)" for name, n, of in counted]
        found += [f"No FLOPs for {', '.join(names)}: the log {reason}."] * bool(names)
    return found


def _uneven_times(study):
    """Name the arms whose seeds trained at different speeds, for example on different machines or beside other programs."""
    found = []
    for arm in study.arms:
        rates = sorted(run.clock.rate for run in arm.counted if run.clock.rate)
        if rates and rates[-1] > 1.2 * rates[0]:
            found.append(
                f"{arm.name}: its seeds differ in speed ({rates[0]:.3g} to {rates[-1]:.3g} s per update), so its times are unreliable."
            )
    return found


def _rounded_times(study):
    """Warn if epochs are so short that fairseq's rounding to whole seconds causes an error above 10 %."""
    worst = max((run.clock.rounding for arm in study.arms for run in arm.counted), default=0.0)
    if worst <= 0.1:
        return []
    return [
        "fairseq logs the training time of an epoch in whole seconds. These epochs are so short that the minutes of training may be"
        f' wrong by {100 * worst:.0f} %. The column "minutes in all" is not affected.'
    ]


def _easy_target(study):
    """Warn if a very bad run determines the common target, because the other runs then reach it almost immediately."""
    best = spread([one.best for one in study.measured_runs(study.baseline)]).mean
    if study.options.target is not None or not study.metric.far_worse(study.target, best):
        return []
    return [
        f"The common target, {study.target:g}, is the best score of the worst run, but {study.baseline.name} reaches {best:g}:"
        " set a better target with --target."
    ]

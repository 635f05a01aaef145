"""The tables of a report."""

from .against import against_table
from .arms import Arm
from .cells import EMPTY, NEVER, cell, name_cell, score_digits, sources
from .comparisons import comparisons_table
from .exports import exported
from .measures import Spread, Study, spread
from .seed_differences import seed_differences
from .tables import Cell, Table


def tables(study: Study) -> list[Table]:
    """Build the tables in reading order. Omit tables without content."""
    made = [results(study)]
    if table := seed_differences(study):
        made.append(table)
    if study.comparisons:
        made.append(comparisons_table(study))
    made += [to_best(study), to_target(study), ratios(study), aucc(study)]
    if study.pairs:
        made.append(bootstrap(study))
    if study.against:
        made.append(against_table(study))
    return [*made, sizes(study), runs(study)]


def results(study: Study) -> Table:
    tokenised = any(test.tokenised is not None for test in study.tests.values())
    bits = any(test.bits is not None for test in study.tests.values())
    bleu = any(test.bleu is not None for test in study.tests.values())
    head = ["arm", "seeds", f"best {study.metric.label}"]
    head += (
        ["test sacreBLEU", "test chrF"] * bleu
        + ["tokenised BLEU"] * tokenised
        + ["test loss (bits)"] * bits
        + ["remarks"]
    )
    digits = score_digits(study)
    rows = []
    for arm in study.arms:
        tests = [study.tests[run.name] for run in arm.counted]
        row = [
            name_cell(arm),
            Cell(_seeds(arm), len(arm.runs)),
            cell(spread([one.best for one in study.measured_runs(arm)]), digits, arm),
        ]
        if bleu:
            row += [cell(spread([getattr(test, score) for test in tests]), 2, arm) for score in ("bleu", "chrf")]
        row += [cell(spread([test.tokenised for test in tests]), 2, arm)] * tokenised
        row += [cell(spread([test.bits for test in tests]), 4, arm)] * bits
        rows.append([*row, Cell(remarks(arm))])
    notes = [
        f"{study.metric.label}: score of the best validation; {study.metric.arrow}. ± is one standard deviation over seeds (n − 1)."
    ]
    scored = [test for test in study.tests.values() if test.bleu is not None]
    notes += [
        f"sacreBLEU: {text}"
        for text in sorted({f"{test.signature}; references: {test.counts.referred}" for test in scored})
    ]
    notes += [f"chrF: {text}; computed on the same lines" for text in sorted({test.chrf_signature for test in scored})]
    notes += [
        f"Tokenised BLEU: {text}; compares H-lines with T-lines, in the tokens of the binarised text. Runs with other tokens cannot be"
        " compared by it."
        for text in sorted({test.tokenised_signature for test in study.tests.values() if test.tokenised_signature})
    ]
    notes += [f"{run.name}: {remark}." for run in _all_runs(study) for remark in study.tests[run.name].remarks]
    return Table("results", "Scores", head, rows, notes)


def to_best(study: Study) -> Table:
    rows = []
    for arm in study.arms:
        best = spread([one.best for one in study.measured_runs(arm)])
        rows.append([name_cell(arm), cell(best, score_digits(study), arm), *_cost(study, arm, "to_best")])
    head = ["arm", f"best {study.metric.label}", *_cost_head(study)]
    return Table(
        "to_best",
        "To the best score",
        head,
        rows,
        ["If several validations have the best score, the first one counts."],
    )


def to_target(study: Study) -> Table:
    rows = []
    for arm in study.arms:
        reached = [one.to_target["updates"] is not None for one in study.measured_runs(arm)]
        rows.append(
            [name_cell(arm), Cell(f"{sum(reached)} of {len(reached)}", sum(reached)), *_cost(study, arm, "to_target")]
        )
    how = (
        "--target"
        if study.options.target is not None
        else "each finished run has a best score; this is the worst of them, so all finished runs reach it"
    )
    notes = [
        f"Target: {study.metric.label} {study.target:g} ({how}). Costs are interpolated linearly between validations."
        ' "never": no seed reaches the target. A mean includes only the seeds that reach it.'
    ]
    title = f"To the common target, {study.metric.label} {study.target:g}"
    return Table("to_target", title, ["arm", "reached", *_cost_head(study)], rows, notes)


def _cost_head(study):
    return ["updates", "minutes", "seconds per update"] + ["PFLOP"] * ("flops" in study.horizons)


def _cost(study, arm, what):
    """Return the cells for updates, minutes and seconds per update, and for PFLOP if FLOPs are known for any run."""
    costs = [getattr(one, what) for one in study.measured_runs(arm)]
    updates, seconds = (spread([cost[key] for cost in costs]) for key in ("updates", "seconds"))
    counted = "flops" in study.horizons
    if not updates.count:
        return [NEVER, NEVER, EMPTY] + [NEVER] * counted
    minutes = spread([None if cost["seconds"] is None else cost["seconds"] / 60 for cost in costs])
    begun = [
        cost["updates"] - one.run.clock.begins_at if cost["updates"] else 0
        for one, cost in zip(study.measured_runs(arm), costs)
    ]
    rates = spread([cost["seconds"] / own if own > 0 else None for cost, own in zip(costs, begun)])
    assert seconds.count == updates.count
    flops = spread([cost["flops"] / 1e15 if cost.get("flops") is not None else None for cost in costs])
    return [cell(updates, 0, arm), cell(minutes, 2, arm), cell(rates, 4, arm)] + [cell(flops, None, arm)] * counted


def ratios(study: Study) -> Table:
    rows = []
    for arm in study.arms:
        row = [name_cell(arm)]
        for what in ("to_best", "to_target"):
            pair = ratio(study, arm, what)
            row += [Cell(f"{value:.3f}", value, source=sources(arm)) for value in pair] if pair else [EMPTY] * 3
        rows.append(row)
    head = [
        "arm",
        *(f"{what}, {to}" for to in ("best", "target") for what in ("updates ×", "seconds per update ×", "time ×")),
    ]
    notes = [
        f"All values are relative to {study.baseline.name}: means over seeds, divided by its means. Updates below 1 mean fewer steps,"
        " seconds per update below 1 mean faster steps. The product of the two is the ratio of times. A ratio is missing if a seed of"
        " either arm does not reach the target, or if a log begins in the middle of training.",
    ]
    return Table("steps_or_speed", "Fewer steps or faster steps", head, rows, notes)


def ratio(study: Study, arm: Arm, what: str) -> tuple[float, float, float] | None:
    """Return an arm's updates, seconds per update, and seconds, each divided by the baseline's.

    Args:
        study: the study.
        arm: the arm.
        what: "to_best" or "to_target": up to which score the cost is counted.

    Returns:
        The three ratios. None if a seed of either arm does not reach the score: a mean over the other seeds would be too small, because
        these are the fast ones. None also if a log begins in the middle of training, because it lacks the earlier training time.
    """
    means: list[float] = []
    for one in (arm, study.baseline):
        if any(measured.run.clock.begins_at for measured in study.measured_runs(one)):
            return None
        costs = [getattr(measured, what) for measured in study.measured_runs(one)]
        found = [spread([cost[key] for cost in costs]) for key in ("updates", "seconds")]
        if any(each.count < each.total for each in found):
            return None
        means += [each.mean or 0.0 for each in found]
    if not all(means):
        return None
    updates, seconds = means[0] / means[2], means[1] / means[3]
    return updates, seconds / updates, seconds


def aucc(study: Study) -> Table:
    head, columns, notes = ["arm"], [], []
    for axis in study.axes:
        areas = {
            arm.name: spread([_over(one.aucc.get(axis.key), axis.scale) for one in study.measured_runs(arm)])
            for arm in study.arms
        }
        largest = max((area.mean for area in areas.values() if area.mean is not None), default=0)
        head += [f"AUCC, {axis.unit}", f"normalised, {axis.key}"]
        columns.append((areas, largest))
    rows = []
    for arm in study.arms:
        row = [name_cell(arm)]
        for areas, largest in columns:
            area = areas[arm.name]
            row.append(cell(area, None, arm))
            share = Spread(area.mean / largest, None, area.count, area.total) if area.mean and largest else spread([])
            row.append(cell(share, 3, arm))
        rows.append(row)
    horizons = ", ".join(f"{study.horizons[axis.key] / axis.scale:.4g} {axis.unit}" for axis in study.axes)
    first = (
        "y is 0 at x = 0, and linear up to the first validation."
        if study.metric.higher
        else "Before the first validation y equals the first score, because an untrained model has no score."
    )
    notes.append(
        f"AUCC = ∫ y dx from x = 0 to the horizon, where x is the cost and y the {study.metric.label} ({study.metric.arrow}"
        f"{'' if study.metric.higher else ', so a smaller area is better'}). y is linear between validations. {first} After the last"
        " validation y stays constant."
    )
    own = "The horizon in time is set by --horizon. Any other" if study.options.horizon is not None else "Each horizon"
    notes.append(
        f"Horizons: {horizons}. Each run has a cost at its best score. {own} is the largest of these costs. A normalised AUCC is divided by"
        " the largest AUCC in its column."
    )
    return Table("aucc", "Area under the convergence curve (AUCC)", head, rows, notes)


def bootstrap(study: Study) -> Table:
    head = ["arm", "seed", "sacreBLEU", "95 % ±", f"baseline {study.baseline.name}", "difference", "p"]
    rows = [
        [
            Cell(pair.arm),
            Cell("?" if pair.seed is None else str(pair.seed), pair.seed, number=True),
            Cell(f"{pair.bleu:.2f}", pair.bleu, source=pair.source),
            Cell(f"{pair.interval:.2f}", pair.interval, source=pair.source),
            Cell(f"{pair.baseline:.2f}", pair.baseline),
            Cell(f"{pair.bleu - pair.baseline:+.2f}", pair.bleu - pair.baseline, source=pair.source),
            Cell(f"{pair.p:.4f}", pair.p, source=pair.source),
        ]
        for pair in study.pairs
    ]
    notes = [
        "Paired bootstrap over the sentences of the test set, computed like sacreBLEU's PairedTest. p is the probability that the choice of"
        " sentences alone causes a difference at least this large. For the variation between seeds, see the differences over seeds.",
        *(f"sacreBLEU: {signature}" for signature in sorted({pair.signature for pair in study.pairs})),
    ]
    return Table("bootstrap", f"Test score against {study.baseline.name}, sentence by sentence", head, rows, notes)


def sizes(study: Study) -> Table:
    rows = []
    for arm in study.arms:
        run = arm.runs[0]
        packed = next(filter(None, map(exported, arm.runs)), None)
        found = [
            (run.log.parameters, str(run.log_file)),
            (run.log.trained, str(run.log_file)),
            (run.size_of("checkpoint_best.pt"), str(run.folder / "checkpoint_best.pt")),
            (packed.bytes if packed else None, packed.source if packed else ""),
            (packed.entropy if packed else None, packed.source if packed else ""),
        ]
        row = [name_cell(arm), *(Cell(f"{n:,}", n, source=where) if n is not None else EMPTY for n, where in found)]
        if packed and packed.entropy and run.log.parameters:
            bits = 8 * packed.entropy / run.log.parameters
            rows.append([*row, Cell(f"{bits:.2f}", bits, source=packed.source)])
        else:
            rows.append([*row, EMPTY])
    head = [
        "arm",
        "parameters",
        "trained",
        "checkpoint_best.pt (bytes)",
        "packed export (bytes)",
        "entropy of the export (bytes)",
        "bits per parameter",
    ]
    notes = [
        "Parameters and checkpoints: of each arm's first run. Exports: of its first run with an export. A checkpoint also contains the"
        " optimizer's state.",
        "Entropy: of the exported tensors, as `export` printed it. Bits per parameter: 8 × entropy ÷ parameters. Each entry of a mask"
        " counts as a parameter.",
    ]
    notes += [f"From --point: {p.name}, {p.bytes:,} bytes, sacreBLEU {p.bleu:g}." for p in study.points]
    return Table("sizes", "Sizes", head, rows, notes)


def runs(study: Study) -> Table:
    head = [
        "run",
        "seed",
        "state",
        "resumes",
        "updates",
        "lost updates",
        "lost minutes",
        "training minutes",
        "minutes in all",
        "tokens per second",
    ]
    head += [f"best {study.metric.label}", "at update", "validations", "log"]
    rows = []
    for run in sorted([*_all_runs(study), *(run for run, _ in study.skipped)], key=lambda run: run.name):
        source, one = str(run.log_file), study.measured.get(run.name)
        row = [Cell(run.name, source=source), Cell("?" if run.seed is None else str(run.seed), run.seed, number=True)]
        row += [Cell(next((why for other, why in study.skipped if other is run), run.state) if not one else run.state)]
        lost = run.clock.lost_seconds / 60
        for value, text in (
            (run.resumes, f"{run.resumes}"),
            (run.updates, f"{run.updates:,}"),
            (run.clock.lost_updates, f"{run.clock.lost_updates:,}"),
            (lost, f"{lost:.1f}"),
            (run.seconds / 60, f"{run.seconds / 60:.1f}"),
            (run.wall / 60, f"{run.wall / 60:.1f}"),
        ):
            row.append(Cell(text, value, source=source))
        speed = run.clock.tokens_per_second
        row.append(EMPTY if speed is None else Cell(f"{speed:,.0f}", speed, source=source))
        if one:
            row.append(Cell(f"{one.best:.{score_digits(study)}f}", one.best, source=source))
            row.append(Cell(f"{one.to_best['updates']:,.0f}", int(one.to_best["updates"]), source=source))
        else:
            row += [EMPTY, EMPTY]
        rows.append([*row, Cell(str(len(run.validations)), len(run.validations), source=source), Cell(source)])
    notes = [
        'interrupted: the log does not end with "done training", because the run was stopped or is still running. An interrupted step of a'
        " sweep, such as generate, was also stopped or is still running."
    ]
    if late := [run.name for run in _all_runs(study) if run.clock.begins_at]:
        notes.append(
            f"The logs of {', '.join(late)} begin in the middle of training. Only the number of updates includes the part before the log."
        )
    return Table("runs", "Runs", head, rows, notes)


def remarks(arm: Arm, with_missing: bool = True) -> str:
    """Return the remarks on an arm: interrupted runs, resumes, and missing seeds unless ``with_missing`` is False."""
    left_out = "" if arm.interrupted else ", not in means"
    found = [f"seed {run.seed} {run.state}{left_out * run.interrupted}" for run in arm.runs if run.state != "finished"]
    found += [f"seed {run.seed} resumed {run.resumes} ×" for run in arm.runs if run.resumes]
    found += [f"seed{'s' * (len(arm.missing) > 1)} {', '.join(map(str, arm.missing))} missing"] * bool(
        arm.missing and with_missing
    )
    return "; ".join([*found, arm.remark] if arm.remark else found)


def _seeds(arm):
    count = len(arm.runs)
    return "1 seed" if count == 1 else f"{count} seeds" + (f" ({', '.join(map(str, arm.seeds))})" if arm.seeds else "")


def _all_runs(study) -> list:
    return [run for arm in study.arms for run in arm.runs]


def _over(value, scale):
    return None if value is None else value / scale

"""The tables of a report."""

from .against import against_table
from .cells import EMPTY, NEVER, cell, column, fixed, name_cell, p_text, signed, sources, value_cell
from .comparisons import comparisons_table
from .configuration import in_order
from .exports import exported_by
from .measures import SHARES, Spread, Study, ratio, spread
from .seed_differences import seed_differences
from .tables import Cell, Table


def tables(study: Study) -> list[Table]:
    """Build the tables in reading order. Omit tables without content."""
    made = [results(study)]
    if study.search:
        made.append(choices(study))
    if study.comparisons:
        made.append(comparisons_table(study))
    if table := seed_differences(study):
        made.append(table)
    if study.against:
        made.append(against_table(study))
    made += [to_best(study), to_target(study), ratios(study), aucc(study)]
    if study.pairs:
        made.append(bootstrap(study))
    return [*made, sizes(study), runs(study)]


def results(study: Study) -> Table:
    tests = study.tests.values()
    tokenised = any(test.tokenised is not None for test in tests)
    bits = any(test.bits is not None for test in tests)
    bleu = any(test.bleu is not None for test in tests)
    repeated = any(arm.seed_count < len(arm.counted) for arm in study.arms)
    head = ["arm", "seeds", *["runs"] * repeated, f"best {study.metric.label}"] + ["test sacreBLEU", "test chrF"] * bleu
    head += ["tokenised BLEU"] * tokenised + ["test loss (bits)"] * bits
    rows = []
    for arm in study.arms:
        own = [study.tests[run.name] for run in arm.counted]
        row = [name_cell(arm), Cell(str(arm.seed_count), arm.seed_count, source=sources(arm))]
        row += [Cell(str(len(arm.counted)), len(arm.counted), source=sources(arm))] * repeated
        row.append(cell(spread([one.best for one in study.measured_runs(arm)]), study.metric.digits, arm))
        if bleu:
            row += [cell(spread([getattr(test, score) for test in own]), 2, arm) for score in ("bleu", "chrf")]
        row += [cell(spread([test.tokenised for test in own]), 2, arm)] * tokenised
        row += [cell(spread([test.bits for test in own]), 4, arm)] * bits
        rows.append(row)
    notes = [
        f"{study.metric.label}: score of the best validation; {study.metric.arrow}. ± is one standard deviation over seeds (n − 1). The"
        " number of seeds n counts only runs that are part of the mean."
    ]
    notes += [f"{name}: {text}" for name, text in _signatures(tests)]
    return Table("results", "Scores", head, rows, notes)


def _signatures(tests):
    """Return pairs (score, note) without repeats. A note contains the score's signature and names the compared texts."""
    scored = [test for test in tests if test.bleu is not None]
    found = [("sacreBLEU", f"{test.signature}; references: {test.counts.referred}.") for test in scored]
    found += [("chrF", f"{test.chrf_signature}; computed on the same lines.") for test in scored]
    found += [
        (
            "Tokenised BLEU",
            f"{test.tokenised_signature}; computed from the tokens of H-lines and T-lines, which are not detokenised. Scores of"
            " runs with different dictionaries or subword models cannot be compared.",
        )
        for test in tests
        if test.tokenised_signature
    ]
    return sorted(set(found), key=lambda pair: (["sacreBLEU", "chrF", "Tokenised BLEU"].index(pair[0]), pair[1]))


def choices(study: Study) -> Table:
    """Build the table of ``--choose``: a row for each chosen arm, a column for each value of the flag."""
    search = study.search
    assert search is not None
    values = sorted({value for choice in search.choices for value in choice.tried}, key=in_order)
    rows = []
    for choice in search.choices:
        tried = [spread(choice.tried.get(value, ())) for value in values]
        scores = [cell(one, search.metric.digits, choice.arm) for one in tried]
        rows.append([name_cell(choice.arm), value_cell(choice.value), *scores])
    notes = [
        f"{search.metric.label}: score of the best validation; {search.metric.arrow}. The values of an arm are compared on"
        " the seeds for which all values were tried. The best value's mean is computed from the same seeds, so it is slightly too good."
    ]
    leaf = search.leaf
    tried_runs = sum(len(arm.runs) for arm in (*search.others, *study.arms))
    groups = ["", "", *(f"{search.metric.label} with {leaf}" for _ in values)]
    fold = f"How {leaf} was chosen for each arm, from {tried_runs} runs"
    return Table(
        "choices", f"Search for {leaf}", ["arm", f"chosen {leaf}", *map(str, values)], rows, notes, groups, fold
    )


def to_best(study: Study) -> Table:
    best = _column(study, study.metric.digits, lambda one: one.best)
    epochs = _column(study, 1, lambda one: one.epoch)
    shares = SHARES if study.metric.higher else ()
    parts = [_column(study, 2, lambda one, share=share: _over(one.to_share[share], 60)) for share in shares]
    rows = [list(row) for row in zip(map(name_cell, study.arms), best, epochs, *_costs(study, "to_best"), *parts)]
    head = ["arm", f"best {study.metric.label}", "epochs", *_cost_head(study)]
    head += [f"minutes to {share:.0%}" for share in shares]
    notes = [
        "If several validations have the best score, the first one counts. Epochs: number of the epoch that contains this validation."
    ]
    if shares:
        notes.append(
            "Minutes to 95 % and 99 %: time until a run reaches this fraction of its own best score."
            " Scores are interpolated linearly between validations."
        )
    return Table("to_best", "To the best score", head, rows, notes)


def to_target(study: Study) -> Table:
    reached = []
    for arm in study.arms:
        those = [one.to_target["updates"] is not None for one in study.measured_runs(arm)]
        reached.append(Cell(f"{sum(those)} of {len(those)}", sum(those)))
    rows = [list(row) for row in zip(map(name_cell, study.arms), reached, *_costs(study, "to_target"))]
    how = (
        "--target"
        if study.options.target is not None
        else "the worst of the best scores of the finished runs, so all finished runs reach it"
    )
    notes = [
        f"Target: {study.metric.label} {study.target:g} ({how}). Costs are interpolated linearly between validations."
        ' "never": no seed reaches the target. A mean includes only the seeds that reach it.'
    ]
    title = f"To the common target, {study.metric.label} {study.target:g}"
    return Table("to_target", title, ["arm", "reached", *_cost_head(study)], rows, notes)


def _cost_head(study):
    return ["updates", "minutes", "seconds per update", *(axis.unit for axis in study.axes if axis.key == "flops")]


def _costs(study, what):
    """Return columns: updates, minutes, seconds per update, and FLOPs if they are known for any run."""

    columns = [
        _column(study, 0, lambda one: getattr(one, what).get("updates")),
        _column(study, 2, lambda one: _over(getattr(one, what).get("seconds"), 60)),
        _column(study, 4, lambda one: _rate(one, what)),
    ]
    for axis in study.axes:
        if axis.key == "flops":
            costs = [
                spread([_over(getattr(one, what).get("flops"), axis.scale) for one in study.measured_runs(arm)])
                for arm in study.arms
            ]
            columns.append(column(costs, study.arms))
    is_reached = [updates is not EMPTY for updates in columns[0]]
    for costs_ in (*columns[:2], *columns[3:]):
        costs_[:] = [found if reached else NEVER for found, reached in zip(costs_, is_reached)]
    return columns


def _column(study, digits, get):
    """Return a column with the mean and standard deviation of a number over each arm's seeds. ``get`` reads the number from a run."""
    return [cell(spread([get(one) for one in study.measured_runs(arm)]), digits, arm) for arm in study.arms]


def _rate(one, what):
    """Return a run's seconds per update until it reaches a score; None if the run does not reach the score."""
    cost = getattr(one, what)
    own = (cost["updates"] or 0) - one.run.clock.begins_at
    return cost["seconds"] / own if own > 0 and cost["seconds"] is not None else None


def ratios(study: Study) -> Table:
    rows = []
    for arm in study.arms:
        row = [name_cell(arm)]
        for what in ("to_best", "to_target"):
            pair = ratio(study, arm, what)
            row += [Cell(fixed(value, 3), value, source=sources(arm)) for value in pair] if pair else [EMPTY] * 3
        rows.append(row)
    head = ["arm", *("updates ×", "seconds per update ×", "time ×") * 2]
    groups = ["", *["to the best score"] * 3, *["to the target"] * 3]
    notes = [
        f"All values are relative to {study.baseline.name}: an arm's mean over seeds, divided by the mean of this baseline."
        " A ratio of updates below 1 means fewer steps. A ratio of seconds per update below 1 means faster steps. The product"
        " of these two ratios is the ratio of times."
        " A ratio is missing if a seed of either arm does not reach the target, or if a log begins in the middle of training.",
    ]
    return Table("steps_or_speed", "Fewer steps or faster steps", head, rows, notes, groups)


def aucc(study: Study) -> Table:
    head, groups, columns, notes = ["arm"], [""], [], []
    for axis in study.axes:
        areas = [
            spread([_over(one.aucc.get(axis.key), axis.scale) for one in study.measured_runs(arm)])
            for arm in study.arms
        ]
        largest = max((area.mean for area in areas if area.mean is not None), default=0)
        shares = [
            Spread(area.mean / largest, None, area.count, area.total) if area.mean and largest else spread([])
            for area in areas
        ]
        head += ["AUCC", "normalised"]
        groups += [f"over {axis.unit}"] * 2
        columns += [column(areas, study.arms), [cell(one, 3, arm) for one, arm in zip(shares, study.arms)]]
    rows = [list(row) for row in zip(map(name_cell, study.arms), *columns)]
    horizons = ", ".join(f"{study.horizons[axis.key] / axis.scale:.4g} {axis.unit}" for axis in study.axes)
    first = (
        "At x = 0, y is 0. Up to the first validation, y is linear."
        if study.metric.higher
        else "Before the first validation, y equals the score of the first validation, because the score of an untrained model is unknown."
    )
    notes.append(
        f"AUCC = ∫ y dx from x = 0 to the horizon, where x is the cost and y the {study.metric.label} ({study.metric.arrow}"
        f"{'' if study.metric.higher else ', so a smaller area is better'}). y is linear between validations. {first} After the last"
        " validation y stays constant."
    )
    own = (
        "--horizon sets the horizon of training time. Each other horizon"
        if study.options.horizon is not None
        else "Each horizon"
    )
    notes.append(
        f"Horizons: {horizons}. {own} is the largest cost at which a run reaches its best score. A normalised AUCC is"
        " the AUCC divided by the largest AUCC in the column."
    )
    return Table("aucc", "Area under the convergence curve (AUCC)", head, rows, notes, groups)


def bootstrap(study: Study) -> Table:
    head = ["arm", "seed", "sacreBLEU", "95 % ±", f"baseline {study.baseline.name}", "difference", "p"]
    rows = [
        [
            Cell(pair.arm),
            Cell("?" if pair.seed is None else str(pair.seed), pair.seed, number=True),
            Cell(fixed(pair.bleu, 2), pair.bleu, source=pair.source),
            Cell(fixed(pair.interval, 2), pair.interval, source=pair.source),
            Cell(fixed(pair.baseline, 2), pair.baseline),
            Cell(signed(pair.bleu - pair.baseline, 2), pair.bleu - pair.baseline, source=pair.source),
            Cell(p_text(pair.p), pair.p, source=pair.source),
        ]
        for pair in study.pairs
    ]
    notes = [
        "Paired bootstrap over the sentences of the test set, computed like sacreBLEU's PairedTest. p is the probability of a difference"
        " at least this large if only the choice of sentences differs. For the variation between seeds, see the differences over seeds.",
        *(f"sacreBLEU: {signature}" for signature in sorted({pair.signature for pair in study.pairs})),
    ]
    return Table("bootstrap", f"Test score against {study.baseline.name}, sentence by sentence", head, rows, notes)


def sizes(study: Study) -> Table:
    rows = []
    for arm in study.arms:
        run = arm.runs[0]
        packed = exported_by(arm)
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
        "all",
        "trained",
        "checkpoint_best.pt",
        "packed export",
        "entropy of the export",
        "bits per parameter",
    ]
    groups = ["", *["parameters"] * 2, *["bytes"] * 3, ""]
    notes = [
        "The numbers of parameters and the sizes of checkpoints are from each arm's first run. The sizes of exports are from the"
        " first run with an export. A checkpoint also contains the optimizer's state.",
        "Entropy: the entropy of the exported tensors, as printed by export --verbose. Bits per parameter: 8 × entropy ÷ parameters."
        " The number of parameters includes the entries of masks.",
    ]
    notes += [f"From --point: {p.name}, {p.bytes:,} bytes, sacreBLEU {p.bleu:g}." for p in study.points]
    return Table("sizes", "Sizes", head, rows, notes, groups)


def runs(study: Study) -> Table:
    head = ["run", "seed", "state", "resumes", "all", "lost", "training", "lost", "in all", "tokens per second"]
    head += [f"best {study.metric.label}", "at update", "validations"]
    groups = [*[""] * 4, *["updates"] * 2, *["minutes"] * 3, *[""] * 4]
    rows = []
    for run in sorted([*study.runs, *(run for run, _ in study.skipped)], key=lambda run: run.name):
        source, one = str(run.log_file), study.measured.get(run.name)
        row = [Cell(run.name, source=source), Cell("?" if run.seed is None else str(run.seed), run.seed, number=True)]
        row += [Cell(next((why for other, why in study.skipped if other is run), run.state) if not one else run.state)]
        for value, digits in (
            (run.resumes, 0),
            (run.updates, 0),
            (run.clock.lost_updates, 0),
            (run.seconds / 60, 1),
            (run.clock.lost_seconds / 60, 1),
            (run.wall / 60, 1),
            (run.clock.tokens_per_second, 0),
            (one.best if one else None, study.metric.digits),
            (int(one.to_best["updates"]) if one else None, 0),
            (len(run.validations), 0),
        ):
            row.append(EMPTY if value is None else Cell(fixed(value, digits), value, source=source))
        rows.append(row)
    notes = [
        'interrupted: the log does not end with "done training", because the run was stopped or is still running.'
        ' "finished: generate interrupted": the step generate of a sweep was stopped or is still running.'
    ]
    return Table("runs", "Runs", head, rows, notes, groups)


def _over(value, scale):
    return None if value is None else value / scale

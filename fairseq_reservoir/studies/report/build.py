"""A report from folders of runs: read, measure, and only then write."""

from ...errors import InputError, printable
from . import contents, exports, folder, page
from .arms import find_arm, group
from .cautions import cautions
from .comparisons import find_pairs
from .configuration import find_key
from .definitions import DEFINITIONS
from .measures import Study, common_horizons, common_target, compare, measure_run, scored
from .metrics import choose
from .runs import find_runs
from .tables import as_csv, escape_markdown, latex, markdown
from .translations import paired_bootstrap, read_references, read_test, remark_other_test_sets


def report(
    runs,
    out: str,
    metric: str | None = None,
    target: float | None = None,
    horizon: float | None = None,
    baseline: str | None = None,
    against: str | None = None,
    references: str | None = None,
    ignore=(),
    with_figures: bool = True,
    points=(),
    comparisons=(),
) -> Study:
    """Write the report of ``runs`` (folders of runs, or of folders of runs) into the folder ``out``.

    Args:
        metric: a score of the validations; see ``metrics.choose`` for the default.
        target: the score to reach; by default ``measures.common_target``.
        horizon: seconds, T of the AUCC over time; by default ``measures.common_horizons``.
        baseline: the arm that others are compared with; by default the first.
        against: a key of the configuration to show scores against.
        references: a file of references for the translations, instead of fairseq-generate's T-lines.
        ignore: keys of the configuration in which the runs of an arm may differ.
        with_figures: whether to draw.
        comparisons: pairs of arms, by name, that are compared besides; their p are corrected together.
        points: files beside the arms' exports in the figure of bytes, each (name, bytes, sacreBLEU) as text.

    Raises:
        InputError: nothing to report, an unknown name, or ``out`` holds something else; nothing has been written then.
    """
    folder.check_out(out)
    if target is not None and not abs(target) < 1e100:
        raise InputError(f"--target {target:g}: must be a finite number")
    if horizon is not None and not 0 < horizon < float("inf"):
        raise InputError(f"--horizon {horizon:g}: must be a positive number of seconds")
    if with_figures:
        from .figures import check_matplotlib

        check_matplotlib()
    lines, given = read_references(references), exports.read_points(points)
    study = measure(find_runs(runs), metric, target, horizon, baseline, against, ignore)
    study.points, study.comparisons = given, find_pairs(comparisons, study.arms)
    study.tests = {run.name: read_test(run.folder, lines) for arm in study.arms for run in arm.runs}
    study.pairs = paired_bootstrap(study.arms, study.baseline, study.tests)
    remark_other_test_sets(study.arms, study.baseline, study.tests)
    folder.write(out, files(study, with_figures))
    return study


def measure(runs, metric=None, target=None, horizon=None, baseline=None, against=None, ignore=()) -> Study:
    """A ``Study`` without test scores; arguments as of ``report``."""
    validated = [run for run in runs if run.validations]
    skipped = [
        (run, f"{run.log_file.name} {run.fault}" if run.fault else "no validation yet")
        for run in runs
        if not run.validations
    ]
    if broken := None if validated else next((run for run in runs if run.fault), None):
        raise InputError(f"RUNS {broken.log_file}: {broken.fault}, and no other log has a finished validation")
    if not validated:
        raise InputError(f"RUNS {', '.join(str(run.log_file) for run in runs[:3])}: no log has a finished validation")
    chosen = choose(metric, validated)
    skipped += [(run, f"no valid_{chosen.name}") for run in validated if not scored(run, chosen)]
    used = [run for run in validated if scored(run, chosen)]
    if not used:
        names = ", ".join(str(run.log_file) for run in validated[:3])
        raise InputError(f"RUNS {names}: no validation has a finite {chosen.name}, give another --metric")
    configurations = [run.configuration for run in used]
    ignored = tuple(find_key(name, configurations, "--ignore") for name in ignore)
    arms = group(used, ignored)
    base = find_arm(baseline, arms)
    key = find_key(against, configurations, "--against") if against else None
    measured = {run.name: measure_run(run, chosen) for run in used}
    ones = list(measured.values())
    ended = [one for one in ones if not one.run.interrupted] or ones
    horizons = common_horizons(ones) | common_horizons(ended) | ({"seconds": horizon} if horizon else {})
    goal = common_target(ended, chosen) if target is None else target
    compare(ones, chosen, goal, horizons)
    return Study(
        chosen,
        arms,
        base,
        measured,
        goal,
        target is not None,
        horizons,
        horizon is not None,
        skipped,
        against=key,
        ignored=ignored,
    )


def files(study: Study, with_figures: bool) -> dict[str, bytes]:
    """Everything that is written, by its path; index.html last."""
    made, drawn = contents.tables(study), {}
    if with_figures:
        from .figures import figures

        drawn = figures(study)
    runs = [run for arm in study.arms for run in arm.runs]
    title = f"{len(study.arms)} arm{'s' * (len(study.arms) != 1)}, {len(runs)} run{'s' * (len(runs) != 1)}: {study.metric.label}"
    lead = (
        f"By {study.metric.label} ({study.metric.arrow}); baseline {study.baseline.name}; common target {study.target:g};"
        f" horizon {study.horizons['seconds'] / 60:.4g} minutes of training."
    )
    warnings = cautions(study)
    written = {"report.md": _encoded(_markdown(made, drawn, title, lead, warnings))}
    for table in made:
        for suffix, form in (("md", markdown), ("tex", latex), ("csv", as_csv)):
            text = form(table)
            written[f"tables/{table.name}.{suffix}"] = _encoded(text if text.endswith("\n") else f"{text}\n")
    for name, (_, formats) in drawn.items():
        written |= {f"figures/{name}.{ending}": formats[ending] for ending in ("png", "pdf")}
    return written | {"index.html": _encoded(page.page(made, drawn, title, lead, warnings))}


def _encoded(text):
    return printable(text).encode()  # paths of logs need not be UTF-8


def _markdown(tables, drawn, title, lead, warnings):
    lines = [f"# {escape_markdown(title)}", "", escape_markdown(lead), ""]
    lines += [f"* {escape_markdown(warning)}" for warning in warnings] + [""] * bool(warnings)
    for name, (caption, _) in drawn.items():
        lines += [f"![{escape_markdown(caption)}](figures/{name}.png)", ""]
    for table in tables:
        lines += [f"## {escape_markdown(table.title)}", "", markdown(table), ""]
    lines += [
        "## How each number is made",
        "",
        *(f"* **{what}**: {escape_markdown(text)}" for what, text in DEFINITIONS),
        "",
    ]
    return "\n".join(lines)

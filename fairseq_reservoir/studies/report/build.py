"""Build a report from folders of runs: read the runs, compute all numbers, write the files."""

from ...errors import InputError, printable
from ..figure_style import check_matplotlib
from . import contents, exports, folder, page
from .answers import answers
from .arms import find_arm, group
from .bootstrap import paired_bootstrap, remark_other_test_sets
from .cautions import cautions
from .cells import plural
from .choices import search
from .comparisons import find_pairs
from .configuration import find_key
from .latex import latex
from .measures import Study, common_horizons, common_target, compared, measure_run, scored
from .metrics import Metric, choose
from .options import ReportOptions
from .runs import Run, find_runs
from .tables import as_csv, markdown
from .translations import read_references, read_test


def report(options: ReportOptions) -> Study:
    """Write the report that ``options`` describes, and return its numbers.

    Raises:
        InputError: ``measure`` fails, matplotlib is missing, ``options.out`` contains files that do not belong to a report, or a file
            cannot be written. In the first three cases, nothing is written.
    """
    folder.check_out(options.out)
    if options.figures:
        check_matplotlib("figures need matplotlib: run pip install matplotlib, or add --no-figures")
    study = measure(options)
    folder.write(options.out, files(study))
    return study


def measure(options: ReportOptions) -> Study:
    """Read the runs and compute all numbers of the report. Write no files.

    Raises:
        InputError: no run has a usable score, or an option is invalid, for example because it names an arm or a flag that no run has.
    """
    references, points = read_references(options.references), exports.read_points(options.points)
    runs = find_runs(options.runs)
    metric, used = _runs_with_scores(runs, options.metric)
    skipped = _skipped(runs, used, metric)
    configurations = [run.configuration for run in used]
    ignored = tuple(find_key(name, configurations, "--ignore") for name in options.ignore)
    arms = group(used, ignored)
    found = None
    if options.choose:
        key = find_key(options.choose, configurations, "--choose")
        found = search(arms, key, ignored, metric, _best)
        arms = [choice.arm for choice in found.choices]
        chosen = {run.name for arm in arms for run in arm.runs}
        used = [run for run in used if run.name in chosen]
    baseline = find_arm(options.baseline, arms)
    against = find_key(options.against, configurations, "--against") if options.against else None
    comparisons = find_pairs(options.comparisons, arms)
    measured = [measure_run(run, metric) for run in used]
    ended = [one for one in measured if not one.run.interrupted] or measured
    horizons = common_horizons(measured) | common_horizons(ended)
    if options.horizon is not None:
        horizons["seconds"] = options.horizon
    target = common_target(ended, metric) if options.target is None else options.target
    tests = {run.name: read_test(run.folder, references) for arm in arms for run in arm.runs}
    pairs = paired_bootstrap(arms, baseline, tests)
    remark_other_test_sets(arms, baseline, tests)
    return Study(
        options=options,
        metric=metric,
        arms=arms,
        baseline=baseline,
        measured={one.run.name: compared(one, metric, target, horizons) for one in measured},
        target=target,
        horizons=horizons,
        skipped=skipped,
        tests=tests,
        pairs=pairs,
        against=against,
        ignored=ignored,
        points=points,
        comparisons=comparisons,
        search=found,
    )


def _best(run, metric):
    return measure_run(run, metric).best if scored(run, metric) else None


def _runs_with_scores(runs: list[Run], name: str | None) -> tuple[Metric, list[Run]]:
    """Choose the metric (see ``metrics.choose``). Return the metric, and the runs with a finite score."""
    validated = [run for run in runs if run.validations]
    if not validated:
        for run in runs:
            if run.fault:
                raise InputError(f"RUNS {run.log_file}: {run.fault}, and no other log has a finished validation")
        raise InputError(f"RUNS {_first_logs(runs)}: no log has a finished validation")
    metric = choose(name, validated)
    used = [run for run in validated if scored(run, metric)]
    if not used:
        raise InputError(
            f"RUNS {_first_logs(validated)}: no validation has a finite {metric.name}; choose a different --metric"
        )
    return metric, used


def _first_logs(runs: list[Run]) -> str:
    return ", ".join(str(run.log_file) for run in runs[:3])


def _skipped(runs: list[Run], used: list[Run], metric: Metric) -> list[tuple[Run, str]]:
    """Return pairs (run, reason) for the runs without a score, first the runs without a validation."""
    names = {run.name for run in used}
    skipped = [(run, _without_validation(run)) for run in runs if not run.validations]
    return skipped + [(run, f"no valid_{metric.name}") for run in runs if run.validations and run.name not in names]


def _without_validation(run: Run) -> str:
    if run.fault:
        return f"{run.log_file.name} {run.fault}"
    failed_step = run.state.partition(": ")[2]
    return f"no validation: {failed_step}" if failed_step else "no validation yet"


def files(study: Study) -> dict[str, bytes]:
    """Return a dictionary from the path of each file of the report to its content. index.html is the last file."""
    drawn = {}
    if study.options.figures:
        from .figures import figures

        drawn = figures(study)
    title = f"{plural(len(study.arms), 'arm')}, {plural(len(study.runs), 'run')}: {study.metric.label}"
    lead = f"{study.metric.label[:1].upper()}{study.metric.label[1:]}: {study.metric.arrow}. Baseline: {study.baseline.name}."
    shown = page.Page(title, lead, answers(study), contents.tables(study), drawn, cautions(study))
    written = {"report.md": _encoded(page.as_markdown(shown))}
    for table in shown.tables:
        for suffix, form in (("md", markdown), ("tex", latex), ("csv", as_csv)):
            text = form(table)
            written[f"tables/{table.name}.{suffix}"] = _encoded(text if text.endswith("\n") else f"{text}\n")
    for name, (_, formats) in drawn.items():
        written |= {f"figures/{name}.{ending}": formats[ending] for ending in ("png", "pdf")}
    return written | {"index.html": _encoded(page.as_page(shown))}


def _encoded(text):
    return printable(text).encode()  # paths of logs need not be UTF-8

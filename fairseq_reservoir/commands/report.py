"""``fairseq-reservoir report``: tables, figures and a page from the logs of training runs."""

from dataclasses import fields

HELP = """\
Compares training runs. Each of RUNS is the folder of a run or a parent folder of runs. Runs that differ only in their seed form an arm. The
command reads the logs of fairseq-train (JSON or text) and the output of fairseq-generate in these folders. It writes these files to DIR:
report.md, tables (Markdown, LaTeX, CSV), figures (PNG, PDF) and the self-contained page index.html. It prints the answers at the top of
this page: which arm is best, by how much, whether the difference is significant, and the arm's time, size and seeds. The report shows
convergence against each of training time, updates, tokens and FLOPs. It also shows the area under the convergence curve (AUCC), the cost to
reach the best score and a common target score, mean and standard deviation over seeds, and sacreBLEU with a paired bootstrap. An archived
run has counts.jsonl, the n-gram counts of each sentence, instead of the sentences. The report lists files that cannot be read.

  fairseq-reservoir report runs/multi30k --out report --baseline dense
"""


def add_parser(commands) -> None:
    parser = commands.add_parser(
        "report",
        help="summarise training runs in tables, figures and a page",
        description=HELP,
    )
    parser.add_argument("runs", nargs="+", metavar="RUNS", help="folders of runs, or parent folders of runs")
    parser.add_argument("--out", required=True, metavar="DIR", help="folder to write; replaces an earlier report")
    _add_score_flags(parser)
    _add_page_flags(parser)
    parser.set_defaults(run=run)


def _add_score_flags(parser) -> None:
    parser.add_argument(
        "--metric", help="validation score to report (default: bleu if all runs have it, else best_checkpoint_metric)"
    )
    parser.add_argument("--baseline", metavar="ARM", help="arm to compare all other arms with (default: the first)")
    parser.add_argument(
        "--compare",
        dest="comparisons",
        nargs=2,
        action="append",
        default=[],
        metavar=("ARM", "OTHER"),
        help="two arms to compare over seeds; the p-values of all --compare pairs are Holm-corrected; may be given several times",
    )
    parser.add_argument(
        "--target",
        type=float,
        metavar="X",
        help="score to reach (default: the best score that all finished runs reach)",
    )
    parser.add_argument(
        "--horizon",
        type=float,
        metavar="SECONDS",
        help="training time at which the AUCC over time ends (default: the longest time that a run needs for its best score)",
    )


def _add_page_flags(parser) -> None:
    parser.add_argument(
        "--against", metavar="FLAG", help="show scores against this flag, such as keep_ratio or encoder_layers"
    )
    parser.add_argument(
        "--choose",
        metavar="FLAG",
        help="name of a flag, such as lr: of the arms that differ only in this flag, show the one with the best validation score; a "
        "collapsed table lists all",
    )
    parser.add_argument(
        "--ignore",
        action="append",
        default=[],
        metavar="FLAG",
        help="treat runs as one arm if they differ only in this flag and the seed; may be given several times",
    )
    parser.add_argument(
        "--references", metavar="FILE", help="references of the test set (default: the T-lines of fairseq-generate)"
    )
    parser.add_argument(
        "--point",
        dest="points",
        nargs=3,
        action="append",
        default=[],
        metavar=("NAME", "BYTES", "BLEU"),
        help="add a file, such as another program's model, to the figure of test scores against sizes; may be given several times",
    )
    parser.add_argument(
        "--no-figures", dest="figures", action="store_false", help="write tables only; does not need matplotlib"
    )


def run(known, fairseq_flags):
    from ..studies.report import ReportOptions, answers, folder, report
    from ..studies.report.cells import plural

    study = report(ReportOptions(**{field.name: vars(known)[field.name] for field in fields(ReportOptions)}))
    runs = sum(len(arm.runs) for arm in study.arms)
    counts = f"{plural(len(study.arms), 'arm')}, {plural(runs, 'run')}, {len(study.skipped)} left out"
    lines = [f"{question} {sentence}" for question, sentence in answers(study)]
    lines.append(f"{known.out}/index.html is the page: {counts}. {known.out} also has {folder.description(known.out)}.")
    return "\n".join(lines)

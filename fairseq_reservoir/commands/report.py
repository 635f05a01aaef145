"""``fairseq-reservoir report``: tables, figures and a page from the logs of training runs."""

HELP = """\
Reads the logs of fairseq-train (JSON or text) and the output of fairseq-generate in RUNS, folders of runs or of folders of runs,
and writes report.md, tables (Markdown, LaTeX, CSV), figures (PNG, PDF) and index.html, one self-contained page, to DIR:
convergence against training time, updates, tokens and FLOPs, AUCC, updates and seconds to the best score and to a common target,
mean and deviation over seeds, sacreBLEU with a paired bootstrap. Folders of an archive have counts.jsonl, what BLEU counts in each
sentence, in place of the sentences. Files that cannot be read are named in the cautions of the report.

  fairseq-reservoir report runs/multi30k --out report --baseline dense
"""


def add_parser(commands) -> None:
    parser = commands.add_parser(
        "report",
        help="make tables, figures and a page of training runs",
        description=HELP,
    )
    parser.add_argument("runs", nargs="+", metavar="RUNS", help="folders, each a run or a parent of runs")
    parser.add_argument(
        "--out", required=True, metavar="DIR", help="where to write; an earlier report there is replaced"
    )
    parser.add_argument(
        "--metric", help="score of the validations (default: bleu if all have it, else best_checkpoint_metric)"
    )
    parser.add_argument("--baseline", metavar="ARM", help="the arm that others are compared with (default: the first)")
    parser.add_argument(
        "--compare",
        nargs=2,
        action="append",
        default=[],
        metavar=("ARM", "OTHER"),
        help="a pre-registered comparison: a table shows its difference over seeds; p-values of all --compare pairs are Holm-corrected; "
        "repeat for more",
    )
    parser.add_argument(
        "--target", type=float, metavar="X", help="score to reach (default: one that every finished run reaches)"
    )
    parser.add_argument(
        "--horizon",
        type=float,
        metavar="SECONDS",
        help="end of the AUCC over time (default: the largest time to a best score)",
    )
    parser.add_argument(
        "--against", metavar="FLAG", help="show scores against this flag: keep_ratio, encoder_layers, ..."
    )
    parser.add_argument(
        "--ignore",
        action="append",
        default=[],
        metavar="FLAG",
        help="runs that differ only in this flag are one arm, too; repeat for more",
    )
    parser.add_argument(
        "--references", metavar="FILE", help="the test set's references (default: fairseq-generate's T-lines)"
    )
    parser.add_argument(
        "--point",
        nargs=3,
        action="append",
        default=[],
        metavar=("NAME", "BYTES", "BLEU"),
        help="another file in the figure of test scores against bytes, such as another program's; repeat for more",
    )
    parser.add_argument("--no-figures", action="store_true", help="tables alone; needs no matplotlib")
    parser.set_defaults(run=run)


def run(known, fairseq_flags):
    from ..studies.report import report

    study = report(
        known.runs,
        known.out,
        metric=known.metric,
        target=known.target,
        horizon=known.horizon,
        baseline=known.baseline,
        against=known.against,
        references=known.references,
        ignore=known.ignore,
        with_figures=not known.no_figures,
        points=known.point,
        comparisons=known.compare,
    )
    runs = sum(len(arm.runs) for arm in study.arms)
    return f"{known.out}/index.html: {len(study.arms)} arms, {runs} runs, {len(study.skipped)} left out"

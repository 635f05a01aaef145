r"""LaTeX tables: their parts, and their width in a document, where LaTeX is installed."""

import re
import shutil
import subprocess

import pytest

from fairseq_reservoir.studies.report import ReportOptions, report
from fairseq_reservoir.studies.report.latex import latex
from fairseq_reservoir.studies.report.tables import Cell, Table
from tests.support.logs import plain_run
from tests.support.runs_of_a_study import write_runs

_DOCUMENT = r"""\documentclass{article}
\usepackage[T1]{fontenc}
\usepackage{booktabs,graphicx}
\begin{document}
%s
\end{document}
"""


def overfull(folder, tables):
    """Compile a document of these files, and return by how many points each line is too wide."""
    (folder / "all.tex").write_text(_DOCUMENT % "\n\n".join(f"\\input{{{table}}}" for table in tables))
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "all.tex"]
    ended = subprocess.run(command, cwd=folder, capture_output=True, encoding="latin-1")
    assert ended.returncode == 0, ended.stdout[-2000:]
    return [float(width) for width in re.findall(r"Overfull \\hbox \(([\d.]+)pt too wide\)", ended.stdout)]


@pytest.mark.skipif(not shutil.which("pdflatex"), reason="pdflatex is not installed")
def test_all_tables_of_a_report_fit_the_page(tmp_path):
    """With three test scores per comparison, a name of 60 characters, and the odd characters of a name."""
    write_runs(tmp_path / "runs")
    plain_run(tmp_path / "runs" / f"{'an-arm-' * 8}long-1", [1, 2], [4, 4], layers=9).write()
    compared = [("keep30", "dense"), ("keep70", "dense")]
    options = ReportOptions(
        [tmp_path / "runs"],
        tmp_path / "out",
        against="keep_ratio",
        comparisons=compared,
        figures=False,
        baseline="dense",
    )
    report(options)
    tables = sorted((tmp_path / "out" / "tables").glob("*.tex"))
    assert {table.stem for table in tables} >= {"named", "over_seeds", "runs", "against", "aucc"}
    assert [width for width in overfull(tmp_path, tables) if width > 1] == []


@pytest.mark.skipif(not shutil.which("pdflatex"), reason="pdflatex is not installed")
def test_a_table_that_is_too_wide_is_found(tmp_path):
    """The check of the test above finds a table of 100 columns, and ``latex`` makes a cell of 200 characters fit."""
    (tmp_path / "wide.tex").write_text(f"\\begin{{tabular}}{{{'r' * 100}}}{'1 & ' * 99}1\\end{{tabular}}\n")
    assert max(overfull(tmp_path, ["wide.tex"])) > 100
    (tmp_path / "fits.tex").write_text(latex(Table("t", "t", ["arm", "note"], [[Cell("a"), Cell("m" * 200)]])))
    assert overfull(tmp_path, ["fits.tex"]) == []


def test_parts_repeat_the_first_column_and_keep_groups_together():
    groups = ["", *["first"] * 3, *["second"] * 3, "", *["third"] * 3]
    head = ["arm", *["difference", "95 % ±", "p"] * 2, "seeds", *["difference", "95 % ±", "p"]]
    rows = [[Cell(f"arm-{n}"), *[Cell("−12.34 ± 5.67", -12.34)] * 10] for n in range(2)]
    text = latex(Table("t", "t", head, rows, groups=groups))
    parts = text.split("\\begin{tabular}{")[1:]
    assert [re.findall(r"\{c\}\{(\w+)\}", part) for part in parts] == [["first"], ["second"], ["third"]]
    assert [part.count("arm-0") for part in parts] == [1, 1, 1] and text.count("seeds") == 1
    assert "\\cmidrule(lr){2-4}" in parts[0] and "$-$12.34 $\\pm$ 5.67" in parts[0]


def test_a_long_name_has_several_lines():
    text = latex(Table("t", "t", ["arm", "score"], [[Cell("[2]-" + "an-arm-" * 8), Cell("1", 1)]]))
    stacked = re.search(r"\\begin\{tabular\}\[t\]\{@\{\}l@\{\}\}(.*?)\\end\{tabular\}", text)[1]
    lines = stacked.split("\\\\")
    assert len(lines) > 1 and lines[0].startswith("{}[2]-") and all(len(line) <= 28 for line in lines)

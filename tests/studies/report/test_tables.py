"""Tables in four formats, with names of folders that are special in each of them."""

import csv
import html
import io
import re

import pytest

from fairseq_reservoir.studies.report.cells import EMPTY, NEVER
from fairseq_reservoir.studies.report.latex import escape_latex, latex
from fairseq_reservoir.studies.report.tables import Cell, Table, as_csv, as_html, markdown

ODD = ["a&b_50%$#{x}~^", '<script>alert("1")</script>', "back\\slash|pipe`tick*", 'comma, "quote"', "new\nline", "Ü 名"]


@pytest.fixture
def table():
    rows = [
        [Cell(name, source=f"/runs/{name}/train.log"), Cell("1.23 ± 0.10", 1.2345678901234567, 0.1)] for name in ODD
    ]
    return Table("odd", "Odd & <names>", ["arm", "a_score, 100 %"], rows, ["a & b < c_d"])


def test_csv_reads_back_unrounded(table):
    head, *rows = csv.reader(io.StringIO(as_csv(table)))
    assert head == ["arm", "a_score, 100 %", "a_score, 100 %, deviation"]
    assert [row[0] for row in rows] == ODD
    assert {float(row[1]) for row in rows} == {1.2345678901234567} and {float(row[2]) for row in rows} == {0.1}


def test_html_escapes_names(table):
    page = as_html(table)
    assert "<script" not in page and "Odd &amp; &lt;names&gt;" in page
    cells = re.findall(r'<th scope="row" title="([^"]*)">(.*?)</th>', page, flags=re.DOTALL)
    assert [html.unescape(text) for _, text in cells] == ODD
    assert [html.unescape(title) for title, _ in cells] == [f"/runs/{name}/train.log" for name in ODD]
    assert page.count('data-value="1.2345678901234567"') == len(ODD)


def test_latex_escapes_names(table):
    text = latex(table)
    body = text.split("\\midrule\n")[1].split("\\bottomrule")[0].splitlines()
    assert len(body) == len(ODD) and all(
        len(re.findall(r"(?<!\\)&", line)) == 1 and line.endswith(" \\\\") for line in body
    )
    assert body[0].startswith("a\\&b\\_50\\%\\$\\#\\{x\\}\\textasciitilde{}\\textasciicircum{} & 1.23 $\\pm$ 0.10")
    assert escape_latex("back\\slash|pipe") == "back\\textbackslash{}slash\\textbar{}pipe"
    # All special characters are escaped: without the escapes LaTeX has nothing to interpret.
    bare = re.sub(r"\\(text\w+\{\}|[&%$#_{}])", "", "".join(escape_latex(name) for name in ODD))
    assert not set(bare) & set("&%$#_{}~^\\<>")
    assert "\\begin{tabular}{lr}" in text and "% a & b < c_d" in text


def test_markdown_keeps_its_columns(table):
    lines = markdown(table).splitlines()
    assert lines[1] == "| --- | ---: |"
    assert all(len(re.findall(r"(?<!\\)\|", line)) == 3 for line in lines[: 2 + len(ODD)])
    assert "\\<script\\>" in lines[3] and "new line" in lines[6]


def test_a_column_of_placeholders_is_numeric():
    """Dashes, "never" and unknown seeds are aligned like numbers, and so are their heads."""
    rows = [[Cell(arm), EMPTY, NEVER, Cell("?", None, number=True), Cell("")] for arm in "ab"]
    table = Table("none", "None", ["arm", "score", "updates", "seed", "remarks"], rows)
    assert markdown(table).splitlines()[1] == "| --- | ---: | ---: | ---: | --- |"
    assert "\\begin{tabular}{lrrrl}" in latex(table)
    head, body = as_html(table).split("<tbody>")
    assert head.count(' class="number">') == 3 and body.count('<td class="number">') == 6
    assert as_csv(table).splitlines()[1:] == ["a,,never,?,", "b,,never,?,"]


def test_no_name_is_a_formula_of_a_spreadsheet():
    formulas = ["=1+2", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1"]
    rows = [[Cell(name), Cell("-0.50", -0.5)] for name in [*formulas, "a=1"]]
    head, *read = csv.reader(io.StringIO(as_csv(Table("t", "t", ["=arm", "score"], rows)), newline=""))
    assert head == ["'=arm", "score"]
    assert read == [["'" + name.replace("\r", "\n"), "-0.5"] for name in formulas] + [["a=1", "-0.5"]]


def test_no_row_of_latex_is_an_option_of_the_line_above():
    rows = [[Cell("[2pt] a"), Cell("1")], [Cell("*"), Cell("[2]")], [Cell("a [2]"), Cell("*")]]
    body = latex(Table("t", "t", ["[arm]", "score"], rows)).splitlines()
    assert body[5:7] == ["{}[arm] & score \\\\", "\\midrule"]
    assert body[7:10] == ["{}[2pt] a & 1 \\\\", "{}* & [2] \\\\", "a [2] & * \\\\"]


def test_groups_of_columns():
    """Files name each column in full. The page has a row of groups above the columns."""
    rows = [[Cell("a"), Cell("1", 1), Cell("2", 2), Cell("3", 3)]]
    table = Table("t", "t", ["arm", "difference", "p", "seeds"], rows, groups=["", "BLEU", "BLEU", ""])
    assert as_csv(table).splitlines()[0] == "arm,BLEU: difference,BLEU: p,seeds"
    assert markdown(table).splitlines()[0] == "| arm | BLEU: difference | BLEU: p | seeds |"
    above, below = re.findall(r"<tr>(.*?)</tr>", as_html(table).split("</thead>")[0])
    assert re.findall(r'rowspan="2" data-column="(\d)"', above) == ["0", "3"]
    assert 'class="group" colspan="2">BLEU</th>' in above
    assert re.findall(r'data-column="(\d)"[^>]*><button type="button">([^<]*)', below) == [
        ("1", "difference"),
        ("2", "p"),
    ]

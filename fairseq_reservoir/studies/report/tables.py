"""A table, and its conversion to Markdown, LaTeX, CSV and HTML."""

import csv
import html
import io
import re
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Cell:
    """A cell of a table.

    Attributes:
        text: the text that is shown.
        value: the unrounded number, for CSV and sorting; None if the cell has none.
        deviation: standard deviation of the number.
        source: path of the log that the number is from.
        number: whether the text is a placeholder for a number, such as a dash.
    """

    text: str
    value: float | int | None = None
    deviation: float | None = None
    source: str = ""
    number: bool = False


@dataclass
class Table:
    """A table. Each row has a cell for each column of ``head``. ``notes`` are printed below the table."""

    name: str
    title: str
    head: list[str]
    rows: list[list[Cell]]
    notes: list[str] = field(default_factory=list)

    @property
    def numeric(self) -> list[bool]:
        """For each column, whether it has numbers. These columns are aligned right."""
        return [
            any(row[column].value is not None or row[column].number for row in self.rows)
            for column in range(len(self.head))
        ]


def markdown(table: Table) -> str:
    lines = [[escape_markdown(name) for name in table.head], ["---:" if number else "---" for number in table.numeric]]
    lines += [[escape_markdown(cell.text) for cell in row] for row in table.rows]
    notes = [f"{escape_markdown(note)}  " for note in table.notes]
    return "\n".join([*(f"| {' | '.join(line)} |" for line in lines), "", *notes]).rstrip()


def latex(table: Table) -> str:
    """Return a ``tabular`` that needs the package booktabs."""
    columns = "".join("r" if number else "l" for number in table.numeric)
    lines = [
        "% \\usepackage{booktabs}",
        f"\\begin{{tabular}}{{{columns}}}",
        "\\toprule",
        _latex_row(table.head),
        "\\midrule",
    ]
    lines += [_latex_row([cell.text for cell in row]) for row in table.rows]
    lines += ["\\bottomrule", "\\end{tabular}", *(f"% {_one_line(note)}" for note in table.notes)]
    return "\n".join(lines) + "\n"


def _latex_row(cells):
    row = " & ".join(map(escape_latex, cells)) + " \\\\"
    # At the start of a row LaTeX reads "[" and "*" as arguments of the line break or rule before it.
    return f"{{}}{row}" if row.startswith(("[", "*")) else row


def as_csv(table: Table) -> str:
    """Return CSV with unrounded numbers. A column with deviations is followed by a column for them.

    Text that a spreadsheet would read as a formula gets an apostrophe in front.
    """
    with_deviation = [any(row[column].deviation is not None for row in table.rows) for column in range(len(table.head))]
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    heads = ([name, f"{name}, deviation"] if two else [name] for name, two in zip(table.head, with_deviation))
    writer.writerow([_no_formula(name) for names in heads for name in names])
    for row in table.rows:
        line = []
        for cell, two, number in zip(row, with_deviation, table.numeric):
            line.append(
                ("" if cell.text in ("", "—") else _no_formula(cell.text)) if cell.value is None else repr(cell.value)
            )
            if two:
                line.append("" if cell.deviation is None else repr(cell.deviation))
        writer.writerow(line)
    return out.getvalue()


def _no_formula(text):
    text = text.replace("\r", "\n")  # the writer does not quote a carriage return
    return f"'{text}" if text.startswith(("=", "+", "-", "@", "\t", "\n")) else text


def as_html(table: Table) -> str:
    """Return an HTML table. A click on a column's head sorts the rows by ``data-value``, or by text in cells without it."""
    right = [' class="number"' if number else "" for number in table.numeric]
    head = "".join(
        f'<th scope="col"{side}><button type="button">{html.escape(name)}</button></th>'
        for name, side in zip(table.head, right)
    )
    rows = (
        (_html_cell(cell, side, column) for column, (cell, side) in enumerate(zip(row, right))) for row in table.rows
    )
    body = "\n".join(f"<tr>{''.join(row)}</tr>" for row in rows)
    notes = "".join(f"<p>{html.escape(note)}</p>" for note in table.notes)
    return (
        f'<section id="{table.name}"><h3>{html.escape(table.title)}</h3>\n<div class="scroll" tabindex="0" role="region"'
        f' aria-label="{html.escape(table.title)}">\n<table>\n<thead><tr>{head}</tr></thead>\n'
        f'<tbody>\n{body}\n</tbody>\n</table></div>\n<div class="notes">{notes}</div></section>'
    )


def _html_cell(cell, side, column):
    value = "" if cell.value is None else f' data-value="{cell.value!r}"'
    title = f' title="{html.escape(cell.source)}"' if cell.source else ""
    tag = 'th scope="row"' if column == 0 else "td"
    return f"<{tag}{side}{value}{title}>{html.escape(cell.text)}</{tag.split()[0]}>"


_LATEX = {
    "\\": "\\textbackslash{}", "~": "\\textasciitilde{}", "^": "\\textasciicircum{}",
    "<": "\\textless{}", ">": "\\textgreater{}", "|": "\\textbar{}",
    "±": "$\\pm$", "×": "$\\times$", "—": "--", "−": "$-$", "–": "--",
} | {sign: f"\\{sign}" for sign in "&%$#_{}"}  # fmt: skip


def escape_latex(text: str) -> str:
    return "".join(_LATEX.get(sign, sign) for sign in _one_line(text))


def escape_markdown(text: str) -> str:
    return re.sub(r"([\\`*_|<>\[\]])", r"\\\1", _one_line(text))


def _one_line(text):
    return " ".join(str(text).split())

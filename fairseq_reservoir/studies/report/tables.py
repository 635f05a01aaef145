"""A table, and its conversion to Markdown, CSV and HTML. ``latex.py`` converts it to LaTeX."""

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
        value: the unrounded number, for CSV and sorting; None if the cell has no number.
        deviation: standard deviation of the number.
        source: path of the log that the number is from.
        number: True for a text in place of a number, such as a dash for a missing number.
    """

    text: str
    value: float | int | None = None
    deviation: float | None = None
    source: str = ""
    number: bool = False


@dataclass
class Table:
    """A table. Each row has a cell for each column.

    Attributes:
        name: name of the table's files.
        title: title of the table.
        head: heading of each column.
        rows: rows of cells.
        notes: definitions and remarks. In a page they are printed at the end. In the file of a single table they are printed below the
            table.
        groups: heading of each column's group; "" for a column without a group. The list is empty if no column has a group.
        fold: text of the line that unfolds the table in a page; "" for a table that is always visible.
    """

    name: str
    title: str
    head: list[str]
    rows: list[list[Cell]]
    notes: list[str] = field(default_factory=list)
    groups: list[str] = field(default_factory=list)
    fold: str = ""

    @property
    def full_head(self) -> list[str]:
        """Return each column heading preceded by its group, such as "test chrF: p"."""
        return [": ".join(filter(None, both)) for both in zip(self.groups or [""] * len(self.head), self.head)]

    @property
    def spans(self) -> list[tuple[str, int]]:
        """Pairs (group, number of its columns) in the order of the columns; the number is 1 for a column without a group."""
        found: list[tuple[str, int]] = []
        for group in self.groups or [""] * len(self.head):
            if group and found and found[-1][0] == group:
                found[-1] = group, found[-1][1] + 1
            else:
                found.append((group, 1))
        return found

    @property
    def numeric(self) -> list[bool]:
        """Whether each column contains numbers. Columns of numbers are aligned right."""
        return [
            any(row[column].value is not None or row[column].number for row in self.rows)
            for column in range(len(self.head))
        ]


def markdown(table: Table, with_notes: bool = True) -> str:
    lines = [
        [escape_markdown(name) for name in table.full_head],
        ["---:" if number else "---" for number in table.numeric],
    ]
    lines += [[escape_markdown(cell.text) for cell in row] for row in table.rows]
    notes = [f"{escape_markdown(note)}  " for note in table.notes] if with_notes else []
    return "\n".join([*(f"| {' | '.join(line)} |" for line in lines), "", *notes]).rstrip()


def as_csv(table: Table) -> str:
    """Return CSV with unrounded numbers. If a column has standard deviations, the next column contains them.

    An apostrophe is put before text that a spreadsheet would read as a formula.
    """
    with_deviation = [any(row[column].deviation is not None for row in table.rows) for column in range(len(table.head))]
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    heads = ([name, f"{name}, deviation"] if two else [name] for name, two in zip(table.full_head, with_deviation))
    writer.writerow([_no_formula(name) for names in heads for name in names])
    for row in table.rows:
        line = []
        for cell, two in zip(row, with_deviation):
            text = "" if cell.text == "—" else _no_formula(cell.text)
            line.append(text if cell.value is None else repr(cell.value))
            if two:
                line.append("" if cell.deviation is None else repr(cell.deviation))
        writer.writerow(line)
    return out.getvalue()


def _no_formula(text):
    text = text.replace("\r", "\n")  # the writer does not quote a carriage return
    return f"'{text}" if text.startswith(("=", "+", "-", "@", "\t", "\n")) else text


def as_html(table: Table) -> str:
    """Return an HTML table whose rows can be sorted by a click on a column's head.

    Cells are sorted by ``data-value``, or by text if they have no ``data-value``.
    """
    right = [' class="number"' if number else "" for number in table.numeric]
    rows = (
        (_html_cell(cell, side, column) for column, (cell, side) in enumerate(zip(row, right))) for row in table.rows
    )
    body = "\n".join(f"<tr>{''.join(row)}</tr>" for row in rows)
    title = html.escape(table.title)
    shown = (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{title}">\n<table>\n<thead>{_html_head(table)}</thead>\n'
        f"<tbody>\n{body}\n</tbody>\n</table></div>"
    )
    if table.fold:
        shown = f"<details><summary>{html.escape(table.fold)}</summary>\n{shown}\n</details>"
        return f'<section id="{table.name}">{shown}</section>'
    how = f' <a class="how" href="#how-{table.name}">definition</a>'
    return f'<section id="{table.name}"><h3>{title}{how}</h3>\n{shown}</section>'


def _html_head(table):
    """Return one or two heading rows. If columns are grouped, the first row has the groups, and the second row their columns."""
    above, below, column = [], [], 0
    for group, count in table.spans:
        for place in range(column, column + count):
            classes = " ".join(["number"] * table.numeric[place] + ["first"] * (place == 0))
            deep = ' rowspan="2"' if any(table.groups) and not group else ""
            classes = f' class="{classes}"' if classes else ""
            button = f'<button type="button">{html.escape(table.head[place])}</button>'
            (below if group else above).append(f'<th scope="col"{deep} data-column="{place}"{classes}>{button}</th>')
        if group:
            above.append(f'<th scope="colgroup" class="group" colspan="{count}">{html.escape(group)}</th>')
        column += count
    return "".join(f"<tr>{''.join(row)}</tr>" for row in (above, below) if row)


def _html_cell(cell, side, column):
    value = "" if cell.value is None else f' data-value="{cell.value!r}"'
    title = f' title="{html.escape(cell.source)}"' if cell.source else ""
    tag = 'th scope="row"' if column == 0 else "td"
    return f"<{tag}{side}{value}{title}>{html.escape(cell.text)}</{tag.split()[0]}>"


def escape_markdown(text: str) -> str:
    return re.sub(r"([\\`*_|<>\[\]])", r"\\\1", one_line(text))


def one_line(text: str) -> str:
    return " ".join(str(text).split())

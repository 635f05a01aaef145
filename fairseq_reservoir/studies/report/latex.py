"""Tables in LaTeX. Each table fits the width of the text: wide tables are divided into parts with the same first column."""

import textwrap

from .tables import Table, one_line

# Estimated widths in points at \footnotesize: the text of ``article``, a character, and the space between columns.
_TEXT, _CHARACTER, _SPACE = 345, 3.9, 8
# Longest line in a column heading, and longest line in the first column.
_HEAD, _NAME = 11, 26
_BEGIN = r"""% \usepackage{booktabs,graphicx}
\begingroup\footnotesize\setlength{\tabcolsep}{4pt}\setlength{\parindent}{0pt}%"""
# A part that is still too wide is scaled down.
_PART = r"""\setbox0=\hbox{%%
%s}%%
\ifdim\wd0>\linewidth\resizebox{\linewidth}{!}{\usebox0}\else\usebox0\fi\par"""


def latex(table: Table) -> str:
    """Return the table as ``tabular`` environments, which need the packages booktabs and graphicx."""
    parts = [_PART % _tabular(table, spans) for spans in _parts(table)]
    notes = [f"% {one_line(note)}" for note in table.notes]
    return "\n".join([_BEGIN, "\\medskip\n".join(f"{part}\n" for part in parts) + "\\endgroup", *notes]) + "\n"


def _parts(table):
    """Divide the columns after the first one into parts that fit the page. The columns of a group stay together."""
    widths = [_width(table, column) for column in range(len(table.head))]
    parts, column = [[]], 0
    for group, count in table.spans:
        columns = list(range(column, column + count))
        column += count
        if columns[0] == 0:
            continue
        used = sum(widths[place] for _, places in parts[-1] for place in places)
        if parts[-1] and widths[0] + used + sum(widths[place] for place in columns) > _TEXT:
            parts.append([])
        parts[-1].append((group, columns))
    return parts


def _width(table, column):
    lines = _wrapped(table.head[column], _HEAD)
    lines += [line for row in table.rows for line in _lines(row[column].text, column)]
    return _SPACE + _CHARACTER * max(map(len, lines))


def _tabular(table, spans):
    places = [0, *(place for _, columns in spans for place in columns)]
    kinds = "".join("r" if table.numeric[place] else "l" for place in places)
    lines = [f"\\begin{{tabular}}{{{kinds}}}", "\\toprule"]
    if any(group for group, _ in spans):
        lines += _group_lines(spans)
    lines += [_row(_stack(_wrapped(table.head[place], _HEAD), table.numeric[place], "b") for place in places)]
    lines.append("\\midrule")
    lines += [
        _row(_stack(_lines(row[place].text, place), table.numeric[place], "t") for place in places)
        for row in table.rows
    ]
    return "\n".join([*lines, "\\bottomrule", "\\end{tabular}"])


def _group_lines(spans):
    """Return the heading row for groups of columns, and the rules below the headings."""
    cells, rules, column = [""], [], 2
    for group, columns in spans:
        if group:
            cells.append(f"\\multicolumn{{{len(columns)}}}{{c}}{{{escape_latex(group)}}}")
            rules.append(f"\\cmidrule(lr){{{column}-{column + len(columns) - 1}}}")
        else:
            cells += [""] * len(columns)
        column += len(columns)
    return [" & ".join(cells) + " \\\\", "".join(rules)]


def _wrapped(text, width):
    return textwrap.wrap(one_line(text), width) or [""]


def _lines(text, column):
    """Return the lines of a cell. Only the first column is wrapped."""
    return _wrapped(text, _NAME) if column == 0 else [one_line(text)]


def _stack(lines, is_number, place):
    """Return the LaTeX of a cell with one or several lines."""
    if len(lines) == 1:
        return escape_latex(lines[0])
    side = "r" if is_number else "l"
    stacked = "\\\\".join(_protected(escape_latex(line)) for line in lines)
    return f"\\begin{{tabular}}[{place}]{{@{{}}{side}@{{}}}}{stacked}\\end{{tabular}}"


def _row(cells):
    return _protected(" & ".join(cells) + " \\\\")


def _protected(row):
    """Put an empty group before "[" and "*". Otherwise LaTeX reads them as arguments of a preceding line break or rule."""
    return f"{{}}{row}" if row.startswith(("[", "*")) else row


_LATEX = {
    "\\": "\\textbackslash{}", "~": "\\textasciitilde{}", "^": "\\textasciicircum{}",
    "<": "\\textless{}", ">": "\\textgreater{}", "|": "\\textbar{}",
    "±": "$\\pm$", "×": "$\\times$", "—": "--", "−": "$-$", "–": "--", "÷": "$\\div$",
} | {sign: f"\\{sign}" for sign in "&%$#_{}"}  # fmt: skip


def escape_latex(text: str) -> str:
    return "".join(_LATEX.get(sign, sign) for sign in one_line(text))

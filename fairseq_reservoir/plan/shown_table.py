"""Slot tables as plain text, as an HTML table and as one record per row."""

from __future__ import annotations

from html import escape
from itertools import groupby
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .slot_table import SlotTable

HEAD = ("slot", "kind", "state", "parameters", "trained", "MFLOP/token")
TEXT_COLUMNS = 3  # these columns are aligned to the left, the numbers after them to the right


def as_records(table: SlotTable) -> list[dict[str, Any]]:
    """Return one dictionary for each row, with the columns of ``HEAD`` as keys. The last three values are numbers, the first three are
    text.
    """
    return [
        dict(zip(HEAD, (r.place, r.kind, r.shown_state, r.parameters, r.trained_parameters, r.flops / 1e6)))
        for r in table.rows
    ]


def as_text(table: SlotTable, merged: bool = False) -> str:
    """Format the table with aligned columns, followed by the notes. ``merged``: write equal neighbouring layers as one row."""
    lines = [HEAD, *_body(table, merged)]
    widths = [max(map(len, column)) for column in zip(*lines)]
    shown = [
        "  ".join(c.ljust(w) if i < TEXT_COLUMNS else c.rjust(w) for i, (c, w) in enumerate(zip(line, widths)))
        for line in lines
    ]
    return "\n".join([*map(str.rstrip, shown), *_notes(table)])


def as_html(table: SlotTable) -> str:
    """Format the table as HTML for a notebook, followed by the notes."""

    def line(tag: str, cells: tuple[str, ...]) -> str:
        sides = ["left"] * TEXT_COLUMNS + ["right"] * (len(cells) - TEXT_COLUMNS)
        return "".join(f'<{tag} style="text-align: {side}">{escape(c)}</{tag}>' for side, c in zip(sides, cells))

    body = "".join(f"<tr>{line('td', cells)}</tr>" for cells in _body(table))
    notes = "".join(f"<p>{escape(note)}</p>" for note in _notes(table))
    return f"<table><thead><tr>{line('th', HEAD)}</tr></thead><tbody>{body}</tbody></table>{notes}"


def _body(table: SlotTable, merged: bool = False) -> list[tuple[str, ...]]:
    """Return the cells of all rows and of the total as text."""
    total = ("total", "", "", table.parameters, table.trained_parameters, table.flops / 1e6)
    rows: list[tuple[Any, ...]] = [tuple(record.values()) for record in as_records(table)]
    if merged:
        rows = [_merged(list(equal)) for _, equal in groupby(rows, key=lambda row: (_stack(row[0]), *row[1:]))]
    return [(*row[:3], f"{row[3]:,}", f"{row[4]:,}", f"{row[5]:.3f}") for row in (*rows, total)]


def _stack(place: str) -> str:
    """Remove the number from a layer's name: ``encoder.layers.3`` -> ``encoder.layers``. Return the name of any other module unchanged."""
    stack, _, number = place.rpartition(".")
    return stack if number.isdecimal() else place


def _merged(rows: list[tuple[Any, ...]]) -> tuple[Any, ...]:
    """Merge the rows of equal layers. The merged row names the first and the last layer, and has the sums of the last three columns."""
    first, last = rows[0], rows[-1]
    if len(rows) == 1:
        return first
    place = f"{first[0]}-{last[0].rpartition('.')[2]}"
    return (place, f"{len(rows)} x {first[1]}", first[2], *(sum(column) for column in list(zip(*rows))[TEXT_COLUMNS:]))


def _notes(table: SlotTable) -> list[str]:
    """Return lines with the trained share of the parameters and the FLOPs of the backward pass."""
    share = table.trained_parameters / max(1, table.parameters)
    seed = f", random tensors drawn from seed {table.seed}" if any(e.random_name for e in table.entries) else ""
    notes = [
        f"trained {share:.2%} of the parameters, {table.trained_share_of_matrices:.2%} of those in matrices; "
        f"frozen {1 - share:.2%}{seed}"
    ]
    if table.flops:
        saved = 1 - table.backward_flops / (2 * table.flops)
        notes.append(
            f"backward {table.backward_flops / 1e6:.3f} MFLOP/token, {saved:.2%} less than with everything trained"
        )
    return notes

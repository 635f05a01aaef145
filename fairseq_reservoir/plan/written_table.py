"""Conversion of a slot table to JSON and back."""

from dataclasses import fields
from typing import Any

from .slot_table import Entry, Row, SlotTable


def as_json(table: SlotTable) -> dict[str, Any]:
    """Convert a table to JSON. Each row becomes a dictionary. Each entry becomes a list ``[name, shape, atom, state, further fields]``.

    Fields with default values are omitted. If an entry's name starts with the name of its row's module, this prefix is omitted. The state
    is "trained", "random" or "frozen". "random" marks a frozen tensor that is drawn from the seed and the tensor's own name.
    """
    rows = []
    for row in table.rows:
        rows.append({**_further(row, "entries"), "entries": [_entry(entry, row.place) for entry in row.entries]})
    return {"seed": table.seed, "rows": rows}


def from_json(stored: dict[str, Any]) -> SlotTable:
    """Restore a table from the output of ``as_json``."""
    rows = []
    for row in stored["rows"]:
        entries = tuple(_read_entry(row["place"], *entry) for entry in row["entries"])
        rows.append(Row(**{**row, "entries": entries}))
    return SlotTable(tuple(rows), stored["seed"])


def _entry(entry: Entry, place: str) -> list[Any]:
    further = _further(entry, "name", "shape", "atom", "trained")
    state = "trained" if entry.trained else "frozen"
    if not entry.trained and entry.random_name == entry.name:
        state = "random"
        del further["random_name"]
    written = [entry.name.removeprefix(place), list(entry.shape), entry.atom, state]
    return [*written, further] if further else written


def _read_entry(
    place: str, ending: str, shape: list[int], atom: str, state: str, further: dict[str, Any] | None = None
) -> Entry:
    name = place + ending if ending.startswith(".") or not ending else ending
    drawn: dict[str, Any] = {"random_name": name} if state == "random" else {}
    return Entry(name=name, shape=tuple(shape), atom=atom, trained=state == "trained", **drawn, **(further or {}))


def _further(instance: Entry | Row, *written: str) -> dict[str, Any]:
    """Return the fields with values other than their defaults, except the fields in ``written``."""
    return {
        field.name: value
        for field in fields(instance)
        if field.name not in written and (value := getattr(instance, field.name)) != field.default
    }

"""A slot table as JSON, and back."""

from dataclasses import fields
from typing import Any

from .slot_table import Entry, Row, SlotTable


def as_json(table: SlotTable) -> dict[str, Any]:
    """Rows of fields, less those at their defaults, with entries as ``[name, shape, atom, state, further fields]``.

    Names are written without the row's place if they begin with it. The state is trained, frozen, or random for what is
    frozen and drawn under its own name. Further fields are left out if all are at their defaults.
    """
    rows = []
    for row in table.rows:
        rows.append({**_further(row, "entries"), "entries": [_entry(entry, row.place) for entry in row.entries]})
    return {"seed": table.seed, "rows": rows}


def from_json(stored: dict[str, Any]) -> SlotTable:
    """The table that ``as_json`` was given."""
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
    """Fields not at their defaults, but for those that are written in another way."""
    return {
        field.name: value
        for field in fields(instance)
        if field.name not in written and (value := getattr(instance, field.name)) != field.default
    }

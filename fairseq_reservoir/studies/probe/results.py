"""Results of probes on one or several checkpoints, as a text table and as JSON."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from os.path import normpath
from typing import Any

from .classifier import Estimate, Result
from .properties import TEST, TRAIN, VALID, Property, Tokens

_NOTE = (
    "Numbers: % of the test tokens, with a 95 % confidence interval over test sentences. control: accuracy of a probe for random labels."
    " selectivity: accuracy - control."
)


@dataclass(frozen=True)
class Probed:
    """Results of a checkpoint.

    Attributes:
        path: path of the checkpoint.
        name: short name for tables and the figure.
        stack: ``encoder``, or ``decoder`` for a language model.
        depths: the embeddings and all layers, with ``number``, ``kind``, ``state`` and ``shown_state``.
        tokens: the probed tokens.
        properties: the properties that were probed.
        results: maps the name of a property to the results of all depths. The result of a layer that was left out is None.
    """

    path: str
    name: str
    stack: str
    depths: Sequence[Any]
    tokens: Tokens
    properties: list[Property]
    results: dict[str, list[Result | None]]

    def sizes(self, one: Property) -> dict[str, int]:
        """Return the number of training, validation and test tokens to which the property ``one`` assigns a class."""
        parts = {"training": TRAIN, "validation": VALID, "test": TEST}
        return {name: int(((self.tokens.part == part) & (one.labels >= 0)).sum()) for name, part in parts.items()}


def short_names(paths: Sequence[str]) -> list[str]:
    """Remove common folders and file names from paths: ``runs/a/best.pt`` and ``runs/b/best.pt`` become ``a`` and ``b``.

    If there is only one path, or all paths are equal, the last folder and the file name remain.
    """
    parts = [normpath(path).split("/") for path in paths]
    if len({*map(tuple, parts)}) == 1:
        return ["/".join(part[-2:]) for part in parts]
    for end in (0, -1):
        while min(map(len, parts)) > 1 and len({part[end] for part in parts}) == 1:
            parts = [part[1:] if end == 0 else part[:-1] for part in parts]
    return ["/".join(part) for part in parts]


def as_text(probed: Sequence[Probed], about: str) -> str:
    """Format one table per property, with a row for each layer of each checkpoint.

    Args:
        probed: the results of all checkpoints.
        about: description of the data.
    """
    names = {one.name: one.about for each in probed for one in each.properties}
    blocks = [about, *(f"{each.name}: {each.path}" for each in probed if each.name != each.path)]
    for name, what in names.items():
        rows = [row for each in probed for row in _rows(each, name, several=len(probed) > 1)]
        first = next((each, one) for each in probed for one in each.properties if one.name == name)
        sizes = ", ".join(f"{count:,} {part}" for part, count in first[0].sizes(first[1]).items())
        classes = f"{first[1].classes} classes; always predicting the most frequent class: {100 * first[1].majority:.1f} % correct"
        blocks += ["", f"{name}: {what}", f"  tokens: {sizes}; {classes}"]
        blocks += [f"  {line}" for line in _aligned(_head(len(probed) > 1), rows)]
    return "\n".join([*blocks, "", _NOTE])


def _head(several):
    return [*(["model"] if several else []), "layer", "kind", "state", "accuracy", "control", "selectivity"]


def _rows(each: Probed, name: str, several: bool):
    if name not in each.results:
        return
    mine = [each.name] if several else []
    for depth, result in zip(each.depths, each.results[name], strict=True):
        cells = ["", "", ""]
        if result is not None:
            cells = [_shown(result.accuracy), _shown(result.control), _shown(result.selectivity, "+")]
        yield [*mine, str(depth.number), depth.kind, depth.shown_state, *cells]


def _shown(estimate: Estimate, sign: str = "") -> str:
    value, low, high = (100 * number for number in (estimate.value, estimate.low, estimate.high))
    return f"{value:{sign}.1f} ({low:{sign}.1f} to {high:{sign}.1f})"


def _aligned(head, rows):
    widths = [max(map(len, column)) for column in zip(head, *rows)]
    numeric = ("accuracy", "control", "selectivity")
    for line in (head, *rows):
        cells = [cell.rjust(w) if name in numeric else cell.ljust(w) for name, cell, w in zip(head, line, widths)]
        yield "  ".join(cells).rstrip()


def as_json(probed: Sequence[Probed], settings: dict[str, Any]) -> str:
    """Format all results as JSON. Accuracies are between 0 and 1."""
    return json.dumps({**settings, "checkpoints": [_record(each) for each in probed]}, indent=1)


def _record(each: Probed) -> dict[str, Any]:
    found = {}
    for one in each.properties:
        results = zip(each.depths, each.results[one.name], strict=True)
        found[one.name] = {
            "about": one.about,
            "classes": one.classes,
            "tokens": each.sizes(one),
            "majority": one.majority,
            "layers": [{"layer": depth.number, **asdict(result)} for depth, result in results if result],
        }
    layers = [{"layer": d.number, "kind": d.kind, "state": d.state, "shown": d.shown_state} for d in each.depths]
    return {"path": each.path, "name": each.name, "stack": each.stack, "layers": layers, "properties": found}

"""Checkpoints with a kind of layer that a user has written: refused by name where it is not registered."""

from pathlib import Path
from typing import Any

from ..errors import InputError
from ..freezing.description import BUFFER, read_description
from ..plan import kinds


def refuse_unknown_kinds(path: str | Path, state: dict[str, Any]) -> None:
    """Refuses to build a model of layers that nobody has registered here.

    Args:
        path: of the checkpoint or the export.
        state: what fairseq has read from it.

    Raises:
        InputError: one line with the layer and its name.
    """
    model = getattr(state.get("cfg"), "model", None)
    for stack in kinds.STACKS:
        plan = getattr(model, f"reservoir_{stack}", None) or ""
        for letter in plan:
            if letter.isalpha() and letter not in kinds.letters():
                raise InputError(
                    f"{path}: its {stack} {plan} has the layer {_stored_name(state, letter)}, a kind of its author's own that is not "
                    "registered here; give the --user-dir that registers it"
                )


def _stored_name(state: dict[str, Any], letter: str) -> str:
    """As in "A (gated linear unit)"."""
    try:
        stored = read_description(state["model"][BUFFER]).get("kinds") or ""
    except (InputError, KeyError):
        stored = ""
    names = dict(entry.split(" ", 1) for entry in stored.split(", ") if entry)
    return f"{letter} ({names[letter]})" if letter in names else letter

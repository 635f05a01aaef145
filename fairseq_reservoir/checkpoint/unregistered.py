"""Refuse a checkpoint with an unregistered task, architecture or kind of layer. The error names the task, architecture or kind."""

from pathlib import Path
from typing import Any

from fairseq.models import ARCH_MODEL_REGISTRY, MODEL_DATACLASS_REGISTRY
from fairseq.tasks import TASK_REGISTRY

from ..errors import InputError
from ..freezing.description import BUFFER, read_description
from ..options.fairseq_flags import DataFlags, architecture_of, choice_of
from ..options.plans import PlanFlags
from ..options.reading import read
from ..plan import kinds

_ADVICE = "give the --user-dir that registers it (in Python, import that package)"


def refuse_unknown_kinds(path: str | Path, state: dict[str, Any]) -> None:
    """Refuse a model with an unregistered kind of layer, or with a letter that is registered for a different kind.

    Args:
        path: path of the checkpoint or the export.
        state: state that fairseq has read from it.

    Raises:
        InputError: a kind of layer is not registered. The message names the letter and the kind.
    """
    model, names = getattr(state.get("cfg"), "model", None), _stored_names(state)
    flags = vars(read(PlanFlags, model))
    for stack in kinds.STACKS:
        plan = flags[f"reservoir_{stack}"] or ""
        for letter in filter(str.isalpha, plan):
            known = kinds.kind_of(letter).name if letter in kinds.letters_where() else None
            if known is None or letter in names and names[letter] != known:
                layer = f"{letter} ({names[letter]})" if letter in names else letter
                there = "not registered" if known is None else f"registered as a different kind ({known})"
                raise InputError(
                    f"{path}: the plan {plan} of the {stack} has the user-defined layer {layer}, which is {there}; {_ADVICE}"
                )


def check_architecture(cfg: Any) -> None:
    """Refuse an unregistered architecture. Without this check, fairseq raises an IndexError.

    Raises:
        InputError: the architecture is not registered.
    """
    name = architecture_of(cfg)
    if name and name not in ARCH_MODEL_REGISTRY and name not in MODEL_DATACLASS_REGISTRY:
        raise InputError(f"the architecture {name} is not registered; {_ADVICE}")


def check_task(cfg: Any) -> None:
    """Refuse an unregistered task. Refuse to open an export if ``--data`` is not given.

    Raises:
        InputError: the task is not registered, or the folder of the dictionaries is not given.
    """
    if read(DataFlags, cfg).data == "":
        raise InputError(
            "--data: not given; give the folder of the dictionaries, which an export does not name (in Python, use arg_overrides)"
        )
    names = (getattr(cfg, "task", None), choice_of(cfg))  # from the flags of a command line, or from a group of options
    name = next((name for name in names if isinstance(name, str)), None)
    if name and name not in TASK_REGISTRY:
        raise InputError(f"the task {name} is not registered; {_ADVICE}")


def _stored_names(state: dict[str, Any]) -> dict[str, str]:
    """Return the names of user-defined kinds of layers by letter.

    The checkpoint stores a text such as "A gated linear unit, B my layer".
    """
    try:
        stored = read_description(state["model"][BUFFER]).get("kinds") or ""
    except (InputError, KeyError):
        stored = ""
    return dict(entry.split(" ", 1) for entry in stored.split(", ") if entry)

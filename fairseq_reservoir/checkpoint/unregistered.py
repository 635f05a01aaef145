"""Checkpoints of a task, an architecture or a kind of layer that a user has written: refused by name where it is not registered."""

from collections.abc import Callable
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


def refuse_unknown_kinds(path: str | Path, state: dict[str, Any]) -> None:
    """Refuses to build a model of layers that nobody has registered here, or of others with the same letters.

    Args:
        path: of the checkpoint or the export.
        state: what fairseq has read from it.

    Raises:
        InputError: one line with the layer and its name.
    """
    model, names = getattr(state.get("cfg"), "model", None), _stored_names(state)
    flags = read(PlanFlags, model)
    for stack in kinds.STACKS:
        plan = flags.stack(stack).plan or ""
        for letter in filter(str.isalpha, plan):
            known = kinds.kind_of(letter).name if letter in kinds.letters_where() else None
            if known is None or letter in names and names[letter] != known:
                layer = f"{letter} ({names[letter]})" if letter in names else letter
                there = "not registered here" if known is None else f"not the one registered here ({known})"
                raise InputError(
                    f"{path}: its {stack} {plan} has the layer {layer}, a kind of its author's own that is {there}; "
                    "give the --user-dir that registers it"
                )


def refuse_unknown_architecture(build_model: Callable[..., Any], cfg: Any, *args: Any, **kwargs: Any) -> Any:
    """A hook of ``models.build_model``, whose own assertion cannot be put into words (IndexError).

    Raises:
        InputError: one line with the architecture.
    """
    name = architecture_of(cfg)
    if name and name not in ARCH_MODEL_REGISTRY and name not in MODEL_DATACLASS_REGISTRY:
        raise InputError(f"the architecture {name} is not registered here; give the --user-dir that registers it")
    return build_model(cfg, *args, **kwargs)


def check_task(cfg: Any) -> None:
    """Refuses the configuration of a task that is not registered, or of an export whose data folder nobody has named.

    Raises:
        InputError: one line with the task.
    """
    if read(DataFlags, cfg).data == "":
        raise InputError(
            "--data: is not given; name the folder of the dictionaries, which an export does not (arg_overrides in Python)"
        )
    names = (getattr(cfg, "task", None), choice_of(cfg))  # of a command line and of a group
    name = next((name for name in names if isinstance(name, str)), None)
    if name and name not in TASK_REGISTRY:
        raise InputError(f"the task {name} is not registered here; give the --user-dir that registers it")


def refuse_unknown_task(setup_task: Callable[..., Any], cfg: Any, *args: Any, **kwargs: Any) -> Any:
    """A hook of ``tasks.setup_task``, whose own error lists every registered task."""
    check_task(cfg)
    return setup_task(cfg, *args, **kwargs)


def _stored_names(state: dict[str, Any]) -> dict[str, str]:
    """The names of kinds of users' own by letter, of the text "A gated linear unit, B another"."""
    try:
        stored = read_description(state["model"][BUFFER]).get("kinds") or ""
    except (InputError, KeyError):
        stored = ""
    return dict(entry.split(" ", 1) for entry in stored.split(", ") if entry)

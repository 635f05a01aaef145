"""Marks every checkpoint with the training run that it is of and with the dictionaries it was trained with.

Both stand in fairseq's ``extra_state``. A run has a random number, which a resumed run takes over; a training that starts
from a checkpoint without its optimizer state is a new run. Checkpoints of plain fairseq, and earlier ones, have no mark.
"""

import secrets
from collections.abc import Callable
from typing import Any

from fairseq.file_io import PathManager

from . import dictionaries, packed_file
from .other_dictionary import refuse_other_dictionary

_KEY = "fairseq_reservoir"


def origin(state: dict[str, Any]) -> dict[str, Any]:
    """The mark of a checkpoint, with the keys ``run`` and ``dictionaries`` (see ``dictionaries.describe``); empty without one."""
    mark = (state.get("extra_state") or {}).get(_KEY)
    return mark if isinstance(mark, dict) else {}


def dictionaries_of(state: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Those trained with, as ``dictionaries.describe`` has them, of a checkpoint or an export; empty if neither says so."""
    return origin(state).get("dictionaries") or state.get("dictionaries") or {}


def without_run(state: dict[str, Any]) -> dict[str, Any]:
    """The part of ``extra_state`` for a checkpoint that is made from others."""
    mark = origin(state)
    return {_KEY: {"dictionaries": mark["dictionaries"]}} if "dictionaries" in mark else {}


def take_over(
    load_checkpoint: Callable[..., Any],
    trainer: Any,
    filename: str,
    reset_optimizer: bool = False,
    *args: Any,
    **kwargs: Any,
) -> Any:
    """A hook of the trainer: a resumed run keeps the number of its run, and any run must have the dictionaries of its file."""
    extra_state = load_checkpoint(trainer, filename, reset_optimizer, *args, **kwargs)
    state = {"extra_state": extra_state}
    if not reset_optimizer:
        dictionaries.check(filename, dictionaries_of(state), trainer.task, same_size=True)
        trainer.training_run = origin(state).get("run")
    elif PathManager.isfile(filename):
        finetunes = filename == getattr(trainer.cfg.checkpoint, "finetune_from_model", None)
        given = f"{'--finetune-from-model' if finetunes else '--restore-file'} {filename}"
        is_export = str(filename).endswith(packed_file.SUFFIX)
        trained = packed_file.read_body(filename)["dictionaries"] if is_export else dictionaries_of(state)
        refuse_other_dictionary(given, trained, trainer.task)
    return extra_state


def mark(save_checkpoint: Callable[..., Any], trainer: Any, filename: str, extra_state: dict[str, Any]) -> Any:
    """A hook of the trainer: what it saves is marked."""
    trainer.training_run = getattr(trainer, "training_run", None) or secrets.token_hex(16)
    found = {"run": trainer.training_run, "dictionaries": dictionaries.describe(trainer.task)}
    return save_checkpoint(trainer, filename, {**extra_state, _KEY: found})

"""Marks every checkpoint with the training run that it is of and with the dictionaries it was trained with.

Both stand in fairseq's ``extra_state``. A run has a random number, which a resumed run takes over; a training that starts
from a checkpoint without its optimizer state is a new run. Checkpoints of plain fairseq, and earlier ones, have no mark.
"""

import secrets
from typing import Any

from fairseq.file_io import PathManager

from ..options.fairseq_flags import CheckpointFlags
from ..options.reading import read
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


def check_and_restore_run(
    trainer: Any, filename: str, extra_state: dict[str, Any] | None, reset_optimizer: bool
) -> None:
    """Compare the dictionaries of a loaded checkpoint with those of the task. A resumed training continues the run of its checkpoint.

    Raises:
        InputError: the checkpoint was trained with other dictionaries.
    """
    state = {"extra_state": extra_state}
    if not reset_optimizer:
        dictionaries.check(filename, dictionaries_of(state), trainer.task, same_size=True)
        trainer.training_run = origin(state).get("run")
    elif PathManager.isfile(filename):
        finetunes = filename == read(CheckpointFlags, trainer.cfg.checkpoint).finetune_from_model
        given = f"{'--finetune-from-model' if finetunes else '--restore-file'} {filename}"
        is_export = str(filename).endswith(packed_file.SUFFIX)
        trained = packed_file.read_body(filename)["dictionaries"] if is_export else dictionaries_of(state)
        refuse_other_dictionary(given, trained, trainer.task)


def run_id(trainer: Any) -> dict[str, Any]:
    """The mark for ``extra_state``; a training that has no run yet begins one."""
    trainer.training_run = getattr(trainer, "training_run", None) or secrets.token_hex(16)
    return {_KEY: {"run": trainer.training_run, "dictionaries": dictionaries.describe(trainer.task)}}

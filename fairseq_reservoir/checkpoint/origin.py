"""Record the id of the training run, hashes of the dictionaries and the precision of matrix products in each checkpoint.

fairseq's ``extra_state`` stores this record. The run id is a random number. A resumed run keeps its id. A training that starts from a
checkpoint but does not load its optimizer state is a new run. Checkpoints of plain fairseq and of earlier plugin versions have no run id.
"""

import secrets
from typing import Any

from fairseq.file_io import PathManager

from ..options.fairseq_flags import CheckpointFlags
from ..options.reading import read
from . import dictionaries, export_file
from .other_dictionary import refuse_other_dictionary

_KEY = "fairseq_reservoir"


def origin(state: dict[str, Any]) -> dict[str, Any]:
    """Return the record in a checkpoint; {} if it has none.

    The keys are ``run``, ``dictionaries`` (see ``dictionaries.describe``) and, if a precision was chosen, ``products`` (see
    ``speed.matmul_precision``).
    """
    record = (state.get("extra_state") or {}).get(_KEY)
    return record if isinstance(record, dict) else {}


def dictionaries_of(state: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the description of the training dictionaries (``dictionaries.describe``); {} if the file has none."""
    return origin(state).get("dictionaries") or state.get("dictionaries") or {}


def without_run(state: dict[str, Any]) -> dict[str, Any]:
    """Return the record for the ``extra_state`` of an averaged checkpoint. It has the dictionaries of ``state``, but no run id."""
    record = origin(state)
    return {_KEY: {"dictionaries": record["dictionaries"]}} if "dictionaries" in record else {}


def check_and_restore_run(
    trainer: Any, filename: str, extra_state: dict[str, Any] | None, reset_optimizer: bool
) -> None:
    """Refuse a checkpoint if its dictionaries differ from those of the task.

    Restore the run id and the precision of matrix products of a resumed training.

    Raises:
        InputError: the checkpoint was trained with different dictionaries.
    """
    state = {"extra_state": extra_state}
    if not reset_optimizer:
        dictionaries.check(filename, dictionaries_of(state), trainer.task, same_size=True)
        trainer.training_run = origin(state).get("run")
        trainer.products = None if extra_state is None else origin(state).get("products", "highest")
    elif PathManager.isfile(filename):
        finetunes = filename == read(CheckpointFlags, trainer.cfg.checkpoint).finetune_from_model
        given = f"{'--finetune-from-model' if finetunes else '--restore-file'} {filename}"
        is_export = export_file.is_export(filename)
        trained = export_file.read_body(filename)["dictionaries"] if is_export else dictionaries_of(state)
        refuse_other_dictionary(given, trained, trainer.task)


def run_id(trainer: Any) -> dict[str, Any]:
    """Return the record for ``extra_state``. Create a run id if the training does not have one yet."""
    trainer.training_run = trainer.training_run or secrets.token_hex(16)
    record = {"run": trainer.training_run, "dictionaries": dictionaries.describe(trainer.task)}
    if trainer.products:
        record["products"] = trainer.products
    return {_KEY: record}

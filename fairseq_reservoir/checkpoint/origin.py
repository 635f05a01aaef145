"""Marks every checkpoint with the training run that it is of and with the dictionaries it was trained with.

Both stand in fairseq's ``extra_state``. A run has a random number, which a resumed run takes over; a training that starts
from a checkpoint without its optimizer state is a new run. Checkpoints of plain fairseq, and earlier ones, have no mark.
"""

import functools
import secrets

from ..fairseq_repairs.wrap_trainer import wrap_trainer
from . import dictionaries

_KEY = "fairseq_reservoir"


@functools.cache
def install() -> None:
    """Lets fairseq's trainer mark what it saves; a second call does nothing."""
    wrap_trainer(load_checkpoint=_take_over, save_checkpoint=_mark)


def origin(state: dict) -> dict:
    """The mark of a checkpoint, with the keys ``run`` and ``dictionaries`` (see ``dictionaries.describe``); empty without one."""
    mark = (state.get("extra_state") or {}).get(_KEY)
    return mark if isinstance(mark, dict) else {}


def without_run(state: dict) -> dict:
    """The part of ``extra_state`` for a checkpoint that is made from others."""
    mark = origin(state)
    return {_KEY: {"dictionaries": mark["dictionaries"]}} if "dictionaries" in mark else {}


def _take_over(load_checkpoint, trainer, filename, reset_optimizer=False, *args, **kwargs):
    extra_state = load_checkpoint(trainer, filename, reset_optimizer, *args, **kwargs)
    if not reset_optimizer:
        trainer.training_run = origin({"extra_state": extra_state}).get("run")
    return extra_state


def _mark(save_checkpoint, trainer, filename, extra_state):
    trainer.training_run = getattr(trainer, "training_run", None) or secrets.token_hex(16)
    mark = {"run": trainer.training_run, "dictionaries": dictionaries.describe(trainer.task)}
    return save_checkpoint(trainer, filename, {**extra_state, _KEY: mark})

"""Two things of ours that happen when fairseq's trainer starts: the slot table is printed, and resuming is announced."""

import logging
from functools import wraps

from fairseq.trainer import Trainer

from .identity import resuming

logger = logging.getLogger(__name__)


def install() -> None:
    """Wraps the trainer's constructor and ``load_checkpoint``; a second call does nothing."""
    if not hasattr(Trainer, "prints_slot_table"):
        Trainer.__init__ = _print_table_after(Trainer.__init__)
        Trainer.load_checkpoint = _say_resuming_during(Trainer.load_checkpoint)
        Trainer.prints_slot_table = True


def _print_table_after(init):
    @wraps(init)
    def wrapper(self, cfg, task, model, *args, **kwargs):
        init(self, cfg, task, model, *args, **kwargs)
        table = getattr(model, "slot_table", None)
        if table is not None:
            logger.info("what is trained and what is frozen:\n%s", table)

    return wrapper


def _say_resuming_during(load_checkpoint):
    @wraps(load_checkpoint)
    def wrapper(self, filename, reset_optimizer=False, *args, **kwargs):
        token = resuming.set(not reset_optimizer)
        try:
            return load_checkpoint(self, filename, reset_optimizer, *args, **kwargs)
        finally:
            resuming.reset(token)

    return wrapper

"""What of ours happens inside fairseq's trainer: it prints the slot table, announces resuming, and reports NaN scores."""

import logging
from functools import wraps

from fairseq.trainer import Trainer

from .identity import resuming
from .modules.mask_cache import nan_scores

logger = logging.getLogger(__name__)


def install() -> None:
    """Wraps methods of the trainer; a second call does nothing."""
    if hasattr(Trainer, "prints_slot_table"):
        return
    Trainer.__init__ = _print_table_after(Trainer.__init__)
    Trainer.load_checkpoint = _say_resuming_during(Trainer.load_checkpoint)
    Trainer.train_step = _report_nan_scores_after(Trainer.train_step, _at_log_interval)
    Trainer.begin_valid_epoch = _report_nan_scores_after(Trainer.begin_valid_epoch, _always)
    Trainer.save_checkpoint = _report_nan_scores_after(Trainer.save_checkpoint, _always)
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


def _always(trainer):
    return True


def _at_log_interval(trainer):
    interval = trainer.cfg.common.log_interval
    return interval and trainer.get_num_updates() % interval == 0


def _report_nan_scores_after(method, due):
    """A NaN score still has a place in the ranking, so a mask alone would not show it; looking costs a wait for the device."""

    @wraps(method)
    def wrapper(self, *args, **kwargs):
        result = method(self, *args, **kwargs)
        if due(self):
            names = nan_scores(self.get_model())
            if names:
                logger.error("update %d: NaN in the scores of %s", self.get_num_updates(), ", ".join(names))
        return result

    return wrapper

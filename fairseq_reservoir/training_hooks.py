"""What of ours happens inside fairseq's trainer: it prints the slot table, announces resuming, and reports NaN scores."""

import functools
import logging

from .identity import resuming
from .modules.mask_cache import nan_scores
from .wrap_trainer import wrap_trainer

logger = logging.getLogger(__name__)


@functools.cache
def install() -> None:
    """Wraps methods of the trainer; a second call does nothing."""
    wrap_trainer(
        __init__=_print_table,
        load_checkpoint=_say_resuming,
        train_step=_report_nan_scores_at_log_interval,
        begin_valid_epoch=_report_nan_scores,
        save_checkpoint=_report_nan_scores,
    )


def _print_table(init, trainer, cfg, task, model, *args, **kwargs):
    init(trainer, cfg, task, model, *args, **kwargs)
    table = getattr(model, "slot_table", None)
    if table is not None:
        logger.info("what is trained and what is frozen:\n%s", table)


def _say_resuming(load_checkpoint, trainer, filename, reset_optimizer=False, *args, **kwargs):
    token = resuming.set(not reset_optimizer)
    try:
        return load_checkpoint(trainer, filename, reset_optimizer, *args, **kwargs)
    finally:
        resuming.reset(token)


def _report_nan_scores(method, trainer, *args, **kwargs):
    result = method(trainer, *args, **kwargs)
    _look_for_nan_scores(trainer)
    return result


def _report_nan_scores_at_log_interval(train_step, trainer, *args, **kwargs):
    result = train_step(trainer, *args, **kwargs)
    interval = trainer.cfg.common.log_interval
    if interval and trainer.get_num_updates() % interval == 0:
        _look_for_nan_scores(trainer)
    return result


def _look_for_nan_scores(trainer):
    """A NaN score still has a place in the ranking, so a mask alone would not show it; looking costs a wait for the device."""
    names = nan_scores(trainer.get_model())
    if names:
        logger.error("update %d: NaN in the scores of %s", trainer.get_num_updates(), ", ".join(names))

"""Tells the estimators of ``--backskip`` of every update, and logs how good they are."""

import functools

from fairseq.logging import metrics
from torch import nn

from ..fairseq_repairs.wrap_trainer import wrap_trainer
from ..layers.backskip import NAME


@functools.cache
def install() -> None:
    """Lets the trainer tell estimators, before and after each update and on all processes, and log their cosines; once."""
    wrap_trainer(train_step=_begin_update, set_num_updates=_tell)


def _begin_update(train_step, trainer, *args, **kwargs):
    for skip in _skips_of(trainer):
        skip.begin_update()
    return train_step(trainer, *args, **kwargs)


def _tell(set_num_updates, trainer, num_updates):
    set_num_updates(trainer, num_updates)
    interval = trainer.cfg.common.log_interval
    for skip in _skips_of(trainer):
        skip.set_num_updates(num_updates)
        if skip.cosine is not None and interval and num_updates % interval == 0:
            metrics.log_scalar(f"backskip_cosine_{skip.name}", float(skip.cosine), priority=2000, round=4)
            skip.cosine = None


def _skips_of(trainer):
    return getattr(trainer.get_model(), NAME, nn.ModuleDict()).values()

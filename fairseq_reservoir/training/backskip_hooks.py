"""Tells the estimators of ``--backskip`` of every update, and logs how good they are."""

from fairseq.logging import metrics
from torch import nn

from ..layers.backskip import NAME


def begin_update(train_step, trainer, *args, **kwargs):
    """Tells estimators before each update, on all processes."""
    for skip in _skips_of(trainer):
        skip.begin_update()
    return train_step(trainer, *args, **kwargs)


def end_update(set_num_updates, trainer, num_updates):
    """Tells estimators after each update, and logs their cosines."""
    set_num_updates(trainer, num_updates)
    interval = trainer.cfg.common.log_interval
    for skip in _skips_of(trainer):
        skip.set_num_updates(num_updates)
        if skip.cosine is not None and interval and num_updates % interval == 0:
            metrics.log_scalar(f"backskip_cosine_{skip.name}", float(skip.cosine), priority=2000, round=4)
            skip.cosine = None


def _skips_of(trainer):
    return getattr(trainer.get_model(), NAME, nn.ModuleDict()).values()

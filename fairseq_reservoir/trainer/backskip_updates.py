"""Trainer steps for ``--backskip``: fit the estimators of the gradients below frozen layers, and log their accuracy."""

from typing import Any

from fairseq.logging import metrics

from ..freezing.reservoir_build import backskips_of


def begin_update(trainer: Any) -> None:
    """Prepare the estimators before an update, on all ranks."""
    for skip in backskips_of(trainer.get_model()):
        skip.begin_update()


def end_update(trainer: Any, num_updates: int) -> None:
    """Fit the estimators after an update. Every log interval, log the cosine between each estimated and true gradient."""
    interval = trainer.cfg.common.log_interval
    for skip in backskips_of(trainer.get_model()):
        skip.set_num_updates(num_updates)
        if skip.cosine is not None and interval and num_updates % interval == 0:
            metrics.log_scalar(f"backskip_cosine_{skip.name}", float(skip.cosine), priority=2000, round=4)
            skip.cosine = None

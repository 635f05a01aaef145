"""Repairs of when a training stops."""

import logging
import sys

import fairseq_cli.train
from fairseq import checkpoint_utils
from fairseq.nan_detector import NanDetector
from fairseq.trainer import Trainer

from .repair import repair, wrap

logger = logging.getLogger(__name__)

# In a checkpoint's ``extra_state``: the best validation so far and how many have come since, for --patience.
_PATIENCE = "fairseq_reservoir_patience"
_COUNTED = ("best", "num_runs")  # fairseq keeps both on the function


def _command():
    """The module that trains; ``python -m fairseq_cli.train`` has another copy of it."""
    main = sys.modules["__main__"]
    return main if hasattr(main, "should_stop_early") else fairseq_cli.train


def forget_earlier_runs() -> None:
    """Before a training: fairseq keeps the best loss on its functions, and jobs of a hydra multirun are one process."""
    vars(checkpoint_utils.save_checkpoint).pop("best", None)
    for name in _COUNTED:
        vars(_command().should_stop_early).pop(name, None)


@repair("patience")
def remember_patience():
    """Let ``--patience`` go on where a resumed training stood.

    It began anew, and the training went on for as many validations more.
    """

    def save_checkpoint(original, trainer, filename, extra_state):
        counted = {name: vars(_command().should_stop_early).get(name) for name in _COUNTED}
        kept = {} if counted["best"] is None else {_PATIENCE: counted}
        return original(trainer, filename, {**extra_state, **kept})

    def load_checkpoint(original, trainer, filename, reset_optimizer=False, reset_lr_scheduler=False, *args, **kwargs):
        extra_state = original(trainer, filename, reset_optimizer, reset_lr_scheduler, *args, **kwargs)
        same_scores = not (reset_optimizer or trainer.cfg.checkpoint.reset_meters)
        for name, value in ((extra_state or {}).get(_PATIENCE) or {}).items():
            if same_scores and name in _COUNTED:
                setattr(_command().should_stop_early, name, value)
        return extra_state

    wrap(Trainer, "save_checkpoint", save_checkpoint)
    wrap(Trainer, "load_checkpoint", load_checkpoint)


@repair("finished-training")
def train_no_further():
    """Leave a training alone that has made its ``--max-update`` updates, or used its ``--patience`` up.

    fairseq looks at these after an update, or a validation: a finished training, or one that was killed as it ended, made more
    whenever it was run.
    """

    def train(original, cfg, trainer, task, epoch_itr):
        most, patience = cfg.optimization.max_update, cfg.checkpoint.patience
        if most and trainer.get_num_updates() >= most:
            logger.info(
                "--max-update %d: the checkpoint has been trained for as many updates; nothing is left to do", most
            )
            return [None], True
        if 0 < patience <= vars(_command().should_stop_early).get("num_runs", 0):
            logger.info("--patience %d: as many validations were no better; nothing is left to do", patience)
            return [None], True
        return original(cfg, trainer, task, epoch_itr)

    wrap(_command(), "train", train)


@repair("nan-detector")
def name_what_diverged():
    """Let a training whose gradients are NaN or infinite end with those words.

    fairseq then repeats the update with hooks of the backward pass, for which an encoder's output has a form that torch does not take:
    StopIteration. The forward pass is still looked at, and gradients are still written down by name.
    """

    def look_forward(original, detector, model, forward=True, backward=True):
        original(detector, model, forward, backward=False)

    wrap(NanDetector, "__init__", look_forward)

"""Repairs of how a training ends."""

import logging
import sys

import fairseq_cli.train
from fairseq import checkpoint_utils
from fairseq.nan_detector import NanDetector

from .repair import repair, wrap

logger = logging.getLogger(__name__)

# Entry of a checkpoint's ``extra_state`` for --patience: the best validation loss and the number of validations since.
_PATIENCE = "fairseq_reservoir_patience"
_COUNTED = ("best", "num_runs")  # fairseq stores both as attributes of should_stop_early


def _command():
    """Return the module of the running ``fairseq-train``. With ``python -m fairseq_cli.train`` the running copy is ``__main__``."""
    main = sys.modules["__main__"]
    return main if hasattr(main, "should_stop_early") else fairseq_cli.train


def forget_earlier_runs() -> None:
    """Delete the best losses of earlier trainings in this process, such as earlier jobs of a hydra multirun.

    fairseq stores these losses as attributes of functions.
    """
    vars(checkpoint_utils.save_checkpoint).pop("best", None)
    for name in _COUNTED:
        vars(_command().should_stop_early).pop(name, None)


@repair("patience")
def remember_patience():
    """Restore the count of ``--patience`` when a training is resumed.

    In a resumed training, fairseq starts the count at 0, so the training continues for up to ``--patience`` more validations.
    ``ReservoirTrainer`` calls ``patience_state`` and ``restore_patience``.
    """


def patience_state() -> dict:
    """Return the count of ``--patience`` as an entry of a checkpoint's ``extra_state``; {} before the first validation."""
    counted = {name: vars(_command().should_stop_early).get(name) for name in _COUNTED}
    return {_PATIENCE: counted} if remember_patience.is_applied and counted["best"] is not None else {}


def restore_patience(trainer, extra_state: dict | None, reset_optimizer: bool) -> None:
    """Restore the count of ``--patience`` from a loaded checkpoint. Do nothing if a flag resets the optimizer or the meters."""
    if not remember_patience.is_applied or reset_optimizer or trainer.cfg.checkpoint.reset_meters:
        return
    for name, value in ((extra_state or {}).get(_PATIENCE) or {}).items():
        if name in _COUNTED:
            setattr(_command().should_stop_early, name, value)


@repair("finished-training")
def train_no_further():
    """Stop a resumed training that has already reached ``--max-update`` or ``--patience``.

    fairseq checks these limits only after an update or a validation, so each restart of a finished training adds updates.
    """

    def train(original, cfg, trainer, task, epoch_itr):
        most, patience = cfg.optimization.max_update, cfg.checkpoint.patience
        if most and trainer.get_num_updates() >= most:
            logger.info("--max-update %d: the checkpoint already has at least this many updates; nothing to do", most)
            return [None], True
        if 0 < patience <= vars(_command().should_stop_early).get("num_runs", 0):
            logger.info("--patience %d: at least this many validations did not improve; nothing to do", patience)
            return [None], True
        return original(cfg, trainer, task, epoch_itr)

    wrap(_command(), "train", train)


@repair("nan-detector")
def name_what_diverged():
    """Print fairseq's report when NaN or infinite gradients end a training.

    For the report, fairseq repeats the update with hooks in the forward and the backward pass. torch cannot attach backward hooks to the
    output of an encoder, so the training ends with StopIteration. With this repair, only the forward pass has hooks. The report still
    contains the gradient norm of each parameter.
    """

    def check_forward(original, detector, model, forward=True, backward=True):
        original(detector, model, forward, backward=False)

    wrap(NanDetector, "__init__", check_forward)

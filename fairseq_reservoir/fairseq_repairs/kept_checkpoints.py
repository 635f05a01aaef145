"""Repairs of ``--save-interval-updates`` and ``--keep-best-checkpoints``: the checkpoints that a training keeps."""

import os
from contextvars import ContextVar

from fairseq import checkpoint_utils

from .repair import repair, wrap

# While fairseq saves: how many checkpoints --keep-best-checkpoints keeps, and whether the highest score is the best.
_kept: ContextVar[tuple[int, bool] | None] = ContextVar("_kept", default=None)
# In the patterns with which fairseq lists the files of --keep-best-checkpoints: the place of the score.
_SCORE, _SIGNED_SCORE = r"(\d+\.?\d*)", r"(-?\d+\.?\d*)"


class _WithinEpoch:
    """A training's iterator that does not report the end of its epoch, and is the same otherwise."""

    def __init__(self, iterator):
        self._iterator = iterator

    def __getattr__(self, name):
        return getattr(self._iterator, name)

    def end_of_epoch(self):
        return False


@repair("interval-checkpoints")
def save_where_an_epoch_ends():
    """Write the checkpoint of ``--save-interval-updates`` also where an epoch ends (fairseq #2230).

    With N updates, fairseq writes ``checkpoint_EPOCH_UPDATES.pt`` within epochs only. Where update N, 2N, ... ends an epoch, it relies on
    ``checkpointEPOCH.pt``, but does not write that with ``--no-epoch-checkpoints``, or between two epochs of
    ``--save-interval``. Then nothing but ``checkpoint_last.pt`` and perhaps ``checkpoint_best.pt`` has these weights, and with
    ``--no-last-checkpoints`` no file at all.

    Now ``checkpoint_EPOCH_UPDATES.pt`` is written where ``checkpointEPOCH.pt`` is not; where that is written, nothing is
    changed. EPOCH is the epoch that ends. A run resumed from the file begins the next epoch. ``--keep-interval-updates`` counts
    and deletes such files as those within an epoch. ``checkpoint_last.pt`` and ``checkpoint_best.pt`` are written as before:
    the best one only where the model is validated, which at the end of an epoch depends on ``--validate-interval``.
    """
    wrap(checkpoint_utils, "save_checkpoint", save_checkpoint)


@repair("best-checkpoints")
def keep_the_best_checkpoints():
    """Keep the N best checkpoints with ``--keep-best-checkpoints N`` (fairseq #2195).

    fairseq writes such a checkpoint only if it is better than the worst one kept, or than all before if none is kept,
    also while there are fewer than N. If the first score is the best, one file is kept. fairseq does not find files of
    negative scores, and so never deletes them.
    """
    wrap(checkpoint_utils, "save_checkpoint", save_checkpoint)
    wrap(checkpoint_utils, "checkpoint_paths", checkpoint_paths)


def save_checkpoint(original, cfg, trainer, epoch_itr, val_loss):
    """Both repairs above of fairseq's function, which decides which files to write and which to delete."""
    if save_where_an_epoch_ends.is_applied and _needs_interval_file(cfg, trainer, epoch_itr):
        epoch_itr = _WithinEpoch(epoch_itr)
    token = _kept.set((cfg.keep_best_checkpoints, cfg.maximize_best_checkpoint_metric))
    try:
        return original(cfg, trainer, epoch_itr, val_loss)
    finally:
        _kept.reset(token)


def _needs_interval_file(cfg, trainer, epoch_itr):
    interval, updates = cfg.save_interval_updates, trainer.get_num_updates()
    has_epoch_file = not cfg.no_epoch_checkpoints and epoch_itr.epoch % cfg.save_interval == 0
    return epoch_itr.end_of_epoch() and interval > 0 and updates % interval == 0 and not has_epoch_file


def checkpoint_paths(original, path, pattern=r"checkpoint(\d+)\.pt", keep_match=False):
    """fairseq's function, which lists the files of a pattern from the highest number to the lowest."""
    kept = _kept.get()
    if kept is None or _SCORE not in pattern:
        return original(path, pattern, keep_match)
    number, highest_is_best = kept
    found = original(path, pattern.replace(_SCORE, _SIGNED_SCORE), keep_match)
    if len(found) >= number:
        return found
    # An empty place counts as a file with the worst score of all: fairseq compares with it, and deletes nothing yet.
    worst = pattern.replace(_SCORE, "-inf" if highest_is_best else "inf").replace("\\", "")
    place = os.path.join(path, worst)
    return [*found, place] if highest_is_best else [place, *found]

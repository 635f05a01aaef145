"""Repairs of ``--save-interval-updates`` and ``--keep-best-checkpoints``, which determine the checkpoints that a training keeps."""

import os
from contextvars import ContextVar

from fairseq import checkpoint_utils

from .repair import repair, wrap

# While fairseq saves: the value of --keep-best-checkpoints, and whether the highest score is the best.
_kept: ContextVar[tuple[int, bool] | None] = ContextVar("_kept", default=None)
# The score in fairseq's file patterns for --keep-best-checkpoints, and a replacement that allows a sign.
_SCORE, _SIGNED_SCORE = r"(\d+\.?\d*)", r"(-?\d+\.?\d*)"


class _WithinEpoch:
    """Wrapper of a training's iterator that hides the end of the epoch."""

    def __init__(self, iterator):
        self._iterator = iterator

    def __getattr__(self, name):
        return getattr(self._iterator, name)

    def end_of_epoch(self):
        return False


@repair("interval-checkpoints")
def save_where_an_epoch_ends():
    """Write the checkpoint of ``--save-interval-updates`` also at the end of an epoch (fairseq #2230).

    With an interval of N updates, fairseq writes ``checkpoint_EPOCH_UPDATES.pt`` only within an epoch. If update N, 2N, ... is the last of
    an epoch, fairseq assumes that ``checkpointEPOCH.pt`` is written instead. But that file is not written with ``--no-epoch-checkpoints``,
    or in an epoch that ``--save-interval`` skips. If ``checkpoint_last.pt`` and ``checkpoint_best.pt`` do not contain the weights of this
    update either, the weights are lost.

    This repair writes ``checkpoint_EPOCH_UPDATES.pt`` if ``checkpointEPOCH.pt`` is not written. EPOCH is the epoch that ends. A run
    resumed from this checkpoint begins the next epoch. ``--keep-interval-updates`` counts and deletes the checkpoint like the others.
    """
    wrap(checkpoint_utils, "save_checkpoint", save_checkpoint)


@repair("best-checkpoints")
def keep_the_best_checkpoints():
    """Keep the N best checkpoints with ``--keep-best-checkpoints N`` (fairseq #2195).

    fairseq writes a checkpoint only if its score is better than the worst score of the kept checkpoints, even if fewer than N are kept. If
    the first score is the best of the training, only one checkpoint is kept. fairseq does not find files with negative scores, and never
    deletes them.
    """
    wrap(checkpoint_utils, "save_checkpoint", save_checkpoint)
    wrap(checkpoint_utils, "checkpoint_paths", checkpoint_paths)


def save_checkpoint(original, cfg, trainer, epoch_itr, val_loss):
    """Hook for both repairs above. fairseq's function decides which files to write and which to delete."""
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
    """Hook of fairseq's function, which lists the files that match a pattern. The file with the highest number comes first."""
    kept = _kept.get()
    if kept is None or _SCORE not in pattern:
        return original(path, pattern, keep_match)
    number, highest_is_best = kept
    found = original(path, pattern.replace(_SCORE, _SIGNED_SCORE), keep_match)
    if len(found) >= number:
        return found
    # While fewer files are kept, add a name with the worst possible score, for fairseq's comparison. No file is deleted yet.
    worst = pattern.replace(_SCORE, "-inf" if highest_is_best else "inf").replace("\\", "")
    place = os.path.join(path, worst)
    return [*found, place] if highest_is_best else [place, *found]

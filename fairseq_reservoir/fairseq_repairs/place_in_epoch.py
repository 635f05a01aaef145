"""Repairs of resuming within an epoch: train on exactly the remaining sentences, or refuse in one line.

fairseq saves only how many batches each rank has trained on (fairseq#781).
"""

import math
import zlib

import numpy as np
from fairseq import data
from fairseq.data import iterators

from ..errors import InputError
from .repair import repair, wrap

# Entries of an iterator's state: the number of processes that shared the batches, and a description of the batches.
_PROCESSES, _BATCHES = "num_shards", "batches"
_GIVE_THE_SAME, _OR_RESET = (
    "give the flags and data that it was trained with",
    "or give --reset-dataloader to begin with epoch 1 again",
)


@repair("resumed-groups")
def count_groups_from_the_place():
    """Train to the end of the epoch after a resume with another ``--update-freq``.

    fairseq counts groups of ``--update-freq`` batches from the start of the epoch. If a run resumes after a number of batches that is not
    a multiple of the new ``--update-freq``, the epoch may have one group more than fairseq counts. fairseq skips this group, and then
    trains the same epoch again.
    """

    class GroupedIterator(iterators.GroupedIterator):
        def __init__(self, iterable, chunk_size, skip_remainder_batch=False):
            done, batches = getattr(iterable, "n", 0), len(iterable)
            left = (batches - done) / chunk_size
            groups = math.floor(left) if skip_remainder_batch else math.ceil(left)
            start = math.ceil(done / chunk_size)
            # fairseq's own constructor would call ``take`` with its own count, and a BufferedIterator keeps that limit.
            iterators.CountingIterator.__init__(
                self,
                iterators._chunk_iterator(iterable, chunk_size, skip_remainder_batch),
                start=start,
                total=start + groups,
            )
            self.chunk_size = chunk_size
            what = "skip final residual batch, " if skip_remainder_batch else ""
            iterators.logger.info(f"{what}grouped total_num_itrs = {self.total}")
            if skip_remainder_batch:  # the batches end where the groups end
                iterable.take(done + groups * chunk_size)

    iterators.GroupedIterator = data.GroupedIterator = GroupedIterator


@repair("resumed-processes")
def resume_with_other_processes():
    """Resume within an epoch at the right batch with another number of processes.

    fairseq counts the batches of each process. With another number of processes, the same count means a different position in the epoch.
    fairseq then trains on some batches twice, or skips batches.
    """
    _wrap_iterator()


@repair("same-batches")
def refuse_other_batches():
    """Refuse to resume within an epoch if its batches differ from those of the checkpoint.

    With another ``--batch-size``, ``--max-tokens``, ``--seed`` or other data, the same count of batches means a different position.
    fairseq then trains on some sentences twice, skips others, or ends in a traceback.
    """
    _wrap_iterator()


def _wrap_iterator():
    wrap(iterators.EpochBatchIterator, "state_dict", state_dict)
    wrap(iterators.EpochBatchIterator, "load_state_dict", load_state_dict)


def state_dict(original, iterator):
    """Hook: add the number of processes and the description of the batches to fairseq's state of an iterator."""
    state = original(iterator)
    if resume_with_other_processes.is_applied:
        state = state | {_PROCESSES: iterator.num_shards}
    if refuse_other_batches.is_applied and is_within(iterator, state):
        state = state | {_BATCHES: describe(iterator)}
    return state


def load_state_dict(original, iterator, state):
    """Hook: check that the batches match the saved state, convert the saved position to this run's number of processes, and load it.

    Raises:
        InputError: this run cannot continue at that position.
    """
    checks = refuse_other_batches.is_applied and is_within(iterator, state)
    if checks:
        compare(state.get(_BATCHES) or {}, describe(iterator))
    if resume_with_other_processes.is_applied:
        state = _counted_for_these_processes(iterator, state)
    try:
        return original(iterator, state)
    except RuntimeError as error:
        if not checks or "dataloader mismatch" not in str(error):
            raise
        done = state["iterations_in_epoch"] * iterator.num_shards
        raise InputError(
            f"--batch-size, --max-tokens or data: this run has {len(iterator.frozen_batches)} batches in an epoch, but the checkpoint was "
            f"saved after {done} batches of an epoch; {_GIVE_THE_SAME}, {_OR_RESET}"
        ) from error


def _counted_for_these_processes(iterator, state):
    before, now = state.get(_PROCESSES), iterator.num_shards
    if before in (None, now) or not state.get("iterations_in_epoch"):
        return state
    batches = state["iterations_in_epoch"] * before
    if batches % now or iterator.grouped_shuffling:
        why = (
            "with --grouped-shuffling, the order of the batches depends on the number of processes"
            if iterator.grouped_shuffling
            else f"{now} processes cannot share these batches equally"
        )
        raise InputError(
            f"{now} processes: cannot resume within this epoch, because {why}; the checkpoint was saved by {before} processes after "
            f"{batches} batches in total; start {before} processes, {_OR_RESET}"
        )
    return state | {"iterations_in_epoch": batches // now}


def is_within(iterator: iterators.EpochBatchIterator, state: dict) -> bool:
    """Whether the saved position is within an epoch and the iterator has only one list of batches. Subclasses may have several lists."""
    return type(iterator) is iterators.EpochBatchIterator and bool(state.get("iterations_in_epoch"))


def describe(iterator: iterators.EpochBatchIterator) -> dict[str, int]:
    """Describe the batches and their order: number of batches and sentences, a checksum, and the settings of the shuffling."""
    batches = iterator.frozen_batches
    if getattr(iterator, "described", (None,))[0] is not batches:
        checksum = 0
        for batch in batches:
            checksum = zlib.crc32(b"|" + _bytes_of(batch), checksum)
        iterator.described = (batches, checksum)
    return {
        "number": len(batches),
        "sentences": sum(map(len, batches)),
        "checksum": iterator.described[1],
        "seed": int(iterator.seed),
        "grouped_shuffling": int(iterator.grouped_shuffling),
    }


def _bytes_of(batch):
    try:
        return np.asarray(batch, dtype=np.int64).tobytes()
    except (TypeError, ValueError):  # a user's data set may have indices that are not whole numbers
        return repr(batch).encode()


def compare(saved: dict[str, int], now: dict[str, int]) -> None:
    """Refuse to resume if the batches of this run differ from the batches of the checkpoint.

    Args:
        saved: result of ``describe`` in the checkpoint; empty for checkpoints of plain fairseq and of earlier versions of this package.
        now: result of ``describe`` in this run.

    Raises:
        InputError: the message names the flags that may differ.
    """
    differs = {name for name in now if saved.get(name, now[name]) != now[name]}
    if "seed" in differs:
        raise InputError(
            f"--seed or --update-ordered-indices-seed: this run shuffles with seed {now['seed']}, but the checkpoint was saved within an "
            f"epoch shuffled with seed {saved['seed']}; give the same seed, {_OR_RESET}"
        )
    if "grouped_shuffling" in differs:
        given, other, do = ("given", "without", "remove") if now["grouped_shuffling"] else ("not given", "with", "add")
        raise InputError(
            f"--grouped-shuffling: is {given}, but the checkpoint was saved within an epoch {other} this flag; {do} the flag, {_OR_RESET}"
        )
    if differs:
        this, that = (f"{found['number']} batches of {found['sentences']} sentences" for found in (now, saved))
        other = (
            f"the checkpoint was saved in the middle of an epoch of {that}"
            if this != that
            else "the checkpoint has different batches"
        )
        raise InputError(
            f"--batch-size, --max-tokens or data: this run has {this}, but {other}; {_GIVE_THE_SAME}, {_OR_RESET}"
        )

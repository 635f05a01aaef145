"""Repairs of the batches of each epoch, on one rank and on several."""

import contextlib
from contextvars import ContextVar

from fairseq.data import iterators
from fairseq.tasks import FairseqTask

from .repair import repair, wrap

# While a training creates its batches: the epoch number that fairseq adds to --seed, or 0.
_added = ContextVar("_added", default=0)


@repair("batches-anew")
def load_every_epoch_anew():
    """Draw new masks of ``masked_lm``, new crops and (after ``--curriculum``) a new order in every epoch.

    fairseq reuses the data loader of the first epoch and the order of its batches. With ``--num-workers`` above 0 (the default is 1) it
    also reuses the worker processes, which use the number of the first epoch in all epochs. Each sentence then has the same masks in all
    epochs, but different masks after the training is resumed. ``ReservoirTrainer`` calls ``reload_every_epoch``.
    """


def reload_every_epoch(iterator) -> None:
    """Let an iterator over epochs create a new data loader for each epoch."""
    if load_every_epoch_anew.is_applied and isinstance(iterator, iterators.EpochBatchIterator):
        iterator.reuse_dataloader = iterator.persistent_workers = False


@repair("resumed-batches")
def keep_batches_when_resuming():
    """Give a resumed run the same batches as an uninterrupted run.

    When a run starts, fairseq creates the batches of all epochs. They depend on ``--seed`` and on the epoch in which the run starts. A run
    that is resumed in epoch 2 therefore has different batches than the run that started in epoch 1. A run that is resumed within an epoch
    trains on some sentences twice and skips others.
    """

    def get_batch_iterator(original, task, dataset, *args, **flags):
        epoch = flags.get("epoch", 1)
        kept = task.can_reuse_epoch_itr(dataset) and not (
            flags.get("disable_iterator_cache") or flags.get("update_epoch_batch_itr")
        )
        if not kept or dataset in task.dataset_to_epoch_iter:
            return original(task, dataset, *args, **flags)
        if _added.get():
            flags["seed"] += 1 - _added.get()
        iterator = original(task, dataset, *args, **{**flags, "epoch": 1})
        iterator.epoch = epoch
        return iterator

    wrap(FairseqTask, "get_batch_iterator", get_batch_iterator)


@contextlib.contextmanager
def batches_of_epoch(trainer, epoch: int):
    """Context in which ``ReservoirTrainer`` creates its batches.

    The context stores the epoch number that fairseq adds to ``--seed``, or 0 if fairseq adds none.
    """
    token = _added.set(epoch if trainer.cfg.dataset.update_ordered_indices_seed else 0)
    try:
        yield
    finally:
        _added.reset(token)


@repair("grouped-batches")
def train_on_the_last_group():
    """Train on all batches with ``--grouped-shuffling``.

    With this flag, fairseq sorts the batches by length and forms groups of one batch per rank. If the last group is incomplete, fairseq
    drops it in every epoch, although it has the longest sentences. With this repair, an epoch ends with the incomplete group. Ranks that
    have no batch in this group get an empty batch, as in fairseq without the flag.
    """

    def ordered_batches(original, iterator, epoch, fix_batches_to_gpus, shuffle):
        batches = original(iterator, epoch, fix_batches_to_gpus, shuffle)
        every, processes = iterator.frozen_batches, iterator.num_shards
        rest = every[len(every) // processes * processes :]
        if rest and shuffle and iterator.grouped_shuffling and not iterator._supports_prefetch:
            batches.append(rest[iterator.shard_id] if iterator.shard_id < len(rest) else [])
        return batches

    wrap(iterators.EpochBatchIterator, "ordered_batches", ordered_batches)

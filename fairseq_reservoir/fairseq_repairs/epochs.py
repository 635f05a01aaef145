"""Repairs of how fairseq goes through the batches from epoch to epoch, alone and with several processes."""

from contextvars import ContextVar

from fairseq.data import iterators
from fairseq.tasks import FairseqTask
from fairseq.trainer import Trainer

from .repair import repair, wrap

# While a training asks for its batches: the epoch that it has added to --seed for them.
_added = ContextVar("_added", default=0)


@repair("batches-anew")
def load_every_epoch_anew():
    """Let every epoch have its own masks of ``masked_lm``, crops, and order after ``--curriculum``.

    fairseq keeps the loader of the first epoch, and with it that epoch's order, and with ``--num-workers`` above 0 (1 is the
    default) processes that never hear of another epoch: each sentence was masked alike in all epochs, but anew after a resume.
    """

    def get_train_iterator(original, trainer, *args, **kwargs):
        iterator = original(trainer, *args, **kwargs)
        if isinstance(iterator, iterators.EpochBatchIterator):
            iterator.reuse_dataloader = iterator.persistent_workers = False
        return iterator

    wrap(Trainer, "get_train_iterator", get_train_iterator)


@repair("resumed-batches")
def keep_batches_when_resuming():
    """Give a resumed run the batches of the run that it continues.

    A run makes its batches when it starts, from ``--seed`` and the epoch, which is 1, and keeps them for all epochs.
    A run resumed in epoch 2 made others: it was no longer the same run, and resumed within an epoch it trained on
    some sentences twice and left others out.
    """

    def get_train_iterator(original, trainer, epoch, *args, **kwargs):
        token = _added.set(epoch if trainer.cfg.dataset.update_ordered_indices_seed else 0)
        try:
            return original(trainer, epoch, *args, **kwargs)
        finally:
            _added.reset(token)

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

    wrap(Trainer, "get_train_iterator", get_train_iterator)
    wrap(FairseqTask, "get_batch_iterator", get_batch_iterator)


@repair("grouped-batches")
def train_on_the_last_group():
    """Train on all batches with ``--grouped-shuffling``.

    It groups batches for the processes while they are sorted by length, and drops what does not fill a group: in every epoch the
    longest sentences. They come last now, some processes having none, as the last batches of an epoch otherwise do.
    """

    def ordered_batches(original, iterator, epoch, fix_batches_to_gpus, shuffle):
        batches = original(iterator, epoch, fix_batches_to_gpus, shuffle)
        every, processes = iterator.frozen_batches, iterator.num_shards
        rest = every[len(every) // processes * processes :]
        if rest and shuffle and iterator.grouped_shuffling and not iterator._supports_prefetch:
            batches.append(rest[iterator.shard_id] if iterator.shard_id < len(rest) else [])
        return batches

    wrap(iterators.EpochBatchIterator, "ordered_batches", ordered_batches)

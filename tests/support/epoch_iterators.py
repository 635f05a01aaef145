"""fairseq's epoch iterators over small data sets, without a training."""

import numpy as np
from fairseq.data import FairseqDataset, iterators


class OfAnEpoch(FairseqDataset):
    """Data set with items that depend on the epoch, as masked tokens do."""

    can_reuse_epoch_itr_across_epochs = True
    epoch, collater = 1, list

    def __len__(self):
        return 6

    def __getitem__(self, index):
        return (index, self.epoch)

    def set_epoch(self, epoch):
        self.epoch = epoch

    def ordered_indices(self):
        return np.arange(6)

    def num_tokens(self, index):
        return 1


def over(batches, seed=3, **flags):
    """Iterator over lists of sentences."""
    return iterators.EpochBatchIterator(OfAnEpoch(), list, batches, seed=seed, **flags)


def of_processes(batches, processes, **flags):
    """Iterators of several ranks over batches 0, 1, 2, ... of one sentence."""
    return [
        over([[i] for i in range(batches)], num_shards=processes, shard_id=rank, **flags) for rank in range(processes)
    ]


def order(one, epoch=1):
    """Batches of one rank in an epoch; None for missing batches."""
    return [batch[0] if batch else None for batch in one.ordered_batches(epoch, False, True)]

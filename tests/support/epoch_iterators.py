"""fairseq's epoch iterators over small data sets, without a training around them."""

import numpy as np
from fairseq.data import FairseqDataset, iterators


class OfAnEpoch(FairseqDataset):
    """Items that know the epoch, as masked words do."""

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
    """An iterator over lists of sentences."""
    return iterators.EpochBatchIterator(OfAnEpoch(), list, batches, seed=seed, **flags)


def of_processes(batches, processes, **flags):
    """An iterator of each of several processes over batches 0, 1, 2, ... of one sentence."""
    return [
        over([[i] for i in range(batches)], num_shards=processes, shard_id=rank, **flags) for rank in range(processes)
    ]


def order(one, epoch=1):
    """The batches of one process in an epoch, None where it has none."""
    return [batch[0] if batch else None for batch in one.ordered_batches(epoch, False, True)]

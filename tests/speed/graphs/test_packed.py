"""A batch as one tensor, worked out by hand, and through fairseq's data loader."""

import torch

from fairseq_reservoir.speed.graphs.packed import PACKED, pack
from tests.support.commands import train
from tests.support.graphs import recording

BATCH = {
    "id": torch.tensor([7, 8]),
    "nsentences": 2,
    "net_input": {"src_tokens": torch.tensor([[4, 2], [5, 2]]), "src_lengths": torch.tensor([2, 2])},
    "target": torch.tensor([[6], [2]]),
    "masked": {"index": torch.tensor([3]), "count": 1},
}


def test_a_batch_and_back():
    packed = pack(BATCH)
    assert packed.flat.tolist() == [7, 8, 4, 2, 5, 2, 2, 2, 6, 2, 3]
    assert packed.rest == [(("nsentences",), 2), (("masked", "count"), 1)] and len(packed) == 7
    again = packed.batch()
    assert again.pop(PACKED) is packed
    assert again.keys() == BATCH.keys() and again["nsentences"] == 2 and again["masked"]["count"] == 1
    assert again["net_input"]["src_tokens"].tolist() == [[4, 2], [5, 2]]
    assert again["target"].tolist() == [[6], [2]] and again["masked"]["index"].tolist() == [3]


def test_entries_can_be_read():
    """A subclass of the trainer may read batches in its own ``train_step``."""
    packed = pack(BATCH)
    assert packed["nsentences"] == 2 and packed["net_input"]["src_lengths"].tolist() == [2, 2]


def test_views_follow_the_one_tensor():
    packed = pack(BATCH).clone()
    batch = packed.batch()
    packed.flat.copy_(torch.arange(11))
    assert batch["net_input"]["src_tokens"].tolist() == [[2, 3], [4, 5]] and BATCH["id"].tolist() == [7, 8]


def test_workers_of_the_data_loader_pad_and_pack(toy_data):
    """With a worker in another process the losses are those of a training without one."""
    flags = "--max-epoch 2 --no-save --disable-validation --cuda-graphs --cuda-graph-buckets 2 --batch-size 24".split()
    with recording("cpu"):
        alone, helped = (train(toy_data, *flags, "--num-workers", workers) for workers in (0, 2))
    # 160 sentences in seven batches, the last of 16. In each of two shapes, the first step is an ordinary one.
    assert helped.trainer.graphs.kinds == alone.trainer.graphs.kinds == {"replayed": 12, "recorded": 2, "ordinary": 2}
    assert helped.losses == alone.losses

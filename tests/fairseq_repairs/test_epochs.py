"""Batches from epoch to epoch: what an epoch changes is changed, all are trained on, and other processes go on where some stopped."""

from argparse import Namespace

import numpy as np
import pytest
import torch
from fairseq.data import FairseqDataset, iterators
from fairseq.tasks import FairseqTask
from fairseq.trainer import Trainer
from hypothesis import given, settings, strategies as st

from fairseq_reservoir.errors import InputError
from fairseq_reservoir.fairseq_repairs.repair import hooks_of
from tests.support.commands import train


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


def iterator(plain=False, **flags):
    """What a training gets, or plain fairseq's."""
    made = FairseqTask(Namespace()).get_batch_iterator(OfAnEpoch(), max_sentences=1, seed=5, **flags)
    hook = next(hook for hook in hooks_of(Trainer.get_train_iterator) if "load_every_epoch_anew" in hook.__qualname__)
    return made if plain else hook(lambda trainer: made, None)


@pytest.mark.parametrize("workers", [0, 1])
def test_every_epoch_sees_its_own_items(workers):
    batches = iterator(num_workers=workers)
    for epoch in (1, 2, 3):
        seen = [item for batch in batches.next_epoch_itr() for item in batch]
        assert sorted(seen) == [(index, epoch) for index in range(6)]


def test_plain_fairseq_hands_out_the_first_epoch_again():
    batches = iterator(plain=True, num_workers=1)
    for _ in (1, 2):
        assert {epoch for batch in batches.next_epoch_itr() for _, epoch in batch} == {1}


def test_batches_are_shuffled_after_a_curriculum():
    batches = iterator()
    orders = [[batch[0][0] for batch in batches.next_epoch_itr(shuffle=epoch > 1)] for epoch in (1, 2, 3)]
    assert orders[0] == list(range(6)) and len(set(map(tuple, orders))) == 3


def of_processes(batches, processes, **flags):
    """An iterator of each of several processes over batches 0, 1, 2, ... of one sentence."""
    dataset = OfAnEpoch()
    return [
        iterators.EpochBatchIterator(
            dataset, list, [[i] for i in range(batches)], seed=3, num_shards=processes, shard_id=rank, **flags
        )
        for rank in range(processes)
    ]


def order(one, epoch=1):
    """The batches of one process in an epoch, None where it has none."""
    return [batch[0] if batch else None for batch in one.ordered_batches(epoch, False, True)]


@given(batches=st.integers(1, 40), processes=st.integers(1, 9))
@settings(deadline=None)
def test_grouped_batches_are_all_trained_on(batches, processes):
    shares = [order(one) for one in of_processes(batches, processes, grouped_shuffling=True)]
    assert len({len(share) for share in shares}) == 1 and len(shares[0]) == -(-batches // processes)
    assert sorted(i for share in shares for i in share if i is not None) == list(range(batches))
    for together in list(zip(*shares))[: batches // processes]:  # each group is one of neighbours in length
        assert max(together) - min(together) == processes - 1


@given(batches=st.integers(1, 24), before=st.integers(1, 6), now=st.integers(1, 6), data=st.data())
@settings(deadline=None, max_examples=200)
def test_other_processes_go_on_where_some_stopped(batches, before, now, data):
    made = data.draw(st.integers(1, max(1, batches // before)))
    state = {"version": 2, "epoch": 1, "iterations_in_epoch": made, "shuffle": True, "num_shards": before}
    seen = [batch for one in of_processes(batches, before) for batch in order(one)[:made]]
    if made * before >= batches:
        return  # the epoch is over, which another state says
    left = []
    for one in of_processes(batches, now):
        if before != now and (made * before) % now:
            with pytest.raises(
                InputError,
                match=f"^{now} processes: .* by {before}, after {made * before} batches in all, which cannot be ",
            ):
                one.load_state_dict(state)
            return
        one.load_state_dict(state)
        left += one.epoch_batch_sampler.batches
    assert sorted(seen + [i for batch in left for i in batch]) == list(range(batches))


def test_the_state_says_how_many_processes_there_are():
    (one, _) = of_processes(6, 2)
    next(one.next_epoch_itr())
    assert one.state_dict() == {"version": 2, "epoch": 1, "iterations_in_epoch": 1, "shuffle": True, "num_shards": 2}


@pytest.mark.parametrize("flags", [["--curriculum", 1], ["--update-ordered-indices-seed"]], ids=str)
def test_a_resumed_run_is_the_same_run(toy_data, tmp_path, flags):
    flags = [
        "--reservoir-encoder",
        "L",
        "--decoder-layers",
        1,
        "--no-epoch-checkpoints",
        "--disable-validation",
        *flags,
    ]
    whole = train(toy_data, *flags, "--max-epoch", 3, "--no-save").weights
    train(toy_data, *flags, "--max-epoch", 2, "--save-dir", tmp_path)
    resumed = train(toy_data, *flags, "--max-epoch", 3, "--save-dir", tmp_path).weights
    assert all(torch.equal(resumed[name], whole[name]) for name in whole)

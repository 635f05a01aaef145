"""Batches of several epochs: each epoch has its own items and order, and every batch is trained on."""

from argparse import Namespace

import pytest
import torch
from fairseq.tasks import FairseqTask
from hypothesis import given, settings, strategies as st

from fairseq_reservoir.fairseq_repairs import epochs
from tests.support.commands import train
from tests.support.epoch_iterators import OfAnEpoch, of_processes, order


def iterator(plain=False, **flags):
    """Return the batch iterator of a training, with or without the repair."""
    result = FairseqTask(Namespace()).get_batch_iterator(OfAnEpoch(), max_sentences=1, seed=5, **flags)
    if not plain:
        epochs.reload_every_epoch(result)
    return result


@pytest.mark.parametrize("workers", [0, 1])
def test_every_epoch_sees_its_own_items(workers):
    batches = iterator(num_workers=workers)
    for epoch in (1, 2, 3):
        seen = [item for batch in batches.next_epoch_itr() for item in batch]
        assert sorted(seen) == [(index, epoch) for index in range(6)]


def test_plain_fairseq_repeats_the_items_of_the_first_epoch():
    batches = iterator(plain=True, num_workers=1)
    for _ in (1, 2):
        assert {epoch for batch in batches.next_epoch_itr() for _, epoch in batch} == {1}


def test_batches_are_shuffled_after_a_curriculum():
    batches = iterator()
    orders = [[batch[0][0] for batch in batches.next_epoch_itr(shuffle=epoch > 1)] for epoch in (1, 2, 3)]
    assert orders[0] == list(range(6)) and len(set(map(tuple, orders))) == 3


@given(batches=st.integers(1, 40), ranks=st.integers(1, 9))
@settings(deadline=None)
def test_grouped_batches_are_all_trained_on(batches, ranks):
    shares = [order(one) for one in of_processes(batches, ranks, grouped_shuffling=True)]
    assert len({len(share) for share in shares}) == 1 and len(shares[0]) == -(-batches // ranks)
    assert sorted(i for share in shares for i in share if i is not None) == list(range(batches))
    for group in list(zip(*shares))[: batches // ranks]:  # batches of a group are adjacent in the order by length
        assert max(group) - min(group) == ranks - 1


@pytest.mark.parametrize("flags", [["--curriculum", 1], ["--update-ordered-indices-seed"]], ids=str)
def test_a_resumed_run_has_the_same_weights(toy_data, tmp_path, flags):
    small = "--reservoir-encoder L --decoder-layers 1 --batch-size 40 --no-epoch-checkpoints --disable-validation"
    flags = [*small.split(), *flags]
    whole = train(toy_data, *flags, "--max-epoch", 3, "--no-save").weights
    train(toy_data, *flags, "--max-epoch", 2, "--save-dir", tmp_path)
    resumed = train(toy_data, *flags, "--max-epoch", 3, "--save-dir", tmp_path).weights
    assert all(torch.equal(resumed[name], whole[name]) for name in whole)

"""Resuming within an epoch trains on exactly the remaining sentences, or is refused in one line."""

import itertools

import pytest
from fairseq.data import iterators
from hypothesis import given, settings, strategies as st

from fairseq_reservoir.errors import InputError
from tests.support.commands import error_of, load, train
from tests.support.epoch_iterators import of_processes, order, over


def remaining_groups(iterator, update_freq, skip=False):
    """Return the iterator that counts updates until the end of the epoch, and the sentences of each update."""
    grouped = iterators.GroupedIterator(iterator.next_epoch_itr(), update_freq, skip_remainder_batch=skip)
    return grouped, ([sentence for batch in group for sentence, _ in batch] for group in grouped)


@pytest.mark.parametrize("buffer_size", [0, 10])  # --data-buffer-size; 10 is fairseq's default
@pytest.mark.parametrize("skip", [False, True])
def test_another_update_freq_trains_on_all_remaining_batches(skip, buffer_size):
    """Epochs of 1 to 10 batches, saved after each update of 1 to 5 batches, and resumed with updates of 1 to 5 batches."""
    flags = {"skip_remainder_batch": skip, "buffer_size": buffer_size}
    tried = 0
    for batches, before, now in itertools.product(range(1, 11), range(1, 6), range(1, 6)):
        for updates in range(1, -(-batches // before)):
            (first,) = of_processes(batches, 1, **flags)
            grouped, groups = remaining_groups(first, before, skip)
            if skip and updates >= len(grouped):
                continue  # the epoch is over
            seen = list(itertools.islice(groups, updates))
            (resumed,) = of_processes(batches, 1, **flags)
            resumed.load_state_dict(first.state_dict())
            counted, groups = remaining_groups(resumed, now, skip)
            # The slow reference lists the batches of the epoch and cuts the remaining ones into groups.
            whole = order(first)[: batches - 1 if skip else batches]
            left = whole[updates * before :]
            expected = [left[i : i + now] for i in range(0, len(left), now)]
            if skip and expected and len(expected[-1]) < now:
                expected.pop()
            assert [i for group in seen for i in group] == whole[: updates * before]
            assert list(groups) == expected and counted.n == len(counted)
            assert resumed.end_of_epoch() and resumed.next_epoch_idx == 2
            tried += 1
    assert tried == 5 * (36 + 12 + 5 + 2 + 0 if skip else 45 + 20 + 12 + 8 + 5)  # one term for each of before = 1 to 5


def test_plain_fairseq_skips_the_last_group():
    """5 of 10 batches are left: an update of 4 batches and an update of 1 batch."""
    plain = iterators.GroupedIterator.__mro__[1]
    left = [
        list(kind(iterators.CountingIterator(range(5, 10), start=5, total=10), 4))
        for kind in (plain, iterators.GroupedIterator)
    ]
    assert left == [[[5, 6, 7, 8]], [[5, 6, 7, 8], [9]]]


@given(batches=st.integers(1, 24), before=st.integers(1, 6), now=st.integers(1, 6), data=st.data())
@settings(deadline=None, max_examples=200)
def test_another_number_of_ranks_trains_on_all_remaining_batches(batches, before, now, data):
    done = data.draw(st.integers(1, max(1, batches // before)))
    state = {"version": 2, "epoch": 1, "iterations_in_epoch": done, "shuffle": True, "num_shards": before}
    seen = [batch for one in of_processes(batches, before) for batch in order(one)[:done]]
    if done * before >= batches:
        return  # the epoch is over, and its state has another form
    left = []
    for one in of_processes(batches, now):
        if before != now and (done * before) % now:
            with pytest.raises(
                InputError,
                match=f"^{now} processes: .*, because {now} processes cannot share these batches equally; .* saved by {before} processes "
                f"after {done * before} batches in total; start ",
            ):
                one.load_state_dict(state)
            return
        one.load_state_dict(state)
        left += one.epoch_batch_sampler.batches
    assert sorted(seen + [i for batch in left for i in batch]) == list(range(batches))


def test_the_state_has_the_number_of_ranks_and_within_an_epoch_the_batches():
    (one, _) = of_processes(6, 2)
    epoch = one.next_epoch_itr()
    next(epoch)
    state = one.state_dict()
    batches = state.pop("batches")
    assert state == {"version": 2, "epoch": 1, "iterations_in_epoch": 1, "shuffle": True, "num_shards": 2}
    assert batches.pop("checksum") > 0
    assert batches == {"number": 6, "sentences": 6, "seed": 3, "grouped_shuffling": 0}
    list(epoch)
    assert one.state_dict() == {"version": 2, "epoch": 2, "iterations_in_epoch": 0, "shuffle": True, "num_shards": 2}


SIX = [[0, 1, 2], [3], [4], [5]]
RESET = "or give --reset-dataloader to begin with epoch 1 again"
SAME = f"give the flags and data that it was trained with, {RESET}"
BATCHES = "--batch-size, --max-tokens or data: this run has"
OTHERS = {
    "fewer batches": (
        over([[0, 1], [2, 3], [4, 5]]),
        f"{BATCHES} 3 batches of 6 sentences, but the checkpoint was saved in the middle of an epoch of 4 batches of 6 sentences; {SAME}",
    ),
    "fewer sentences": (
        over([[0, 1], [2], [3], [4]]),
        f"{BATCHES} 4 batches of 5 sentences, but the checkpoint was saved in the middle of an epoch of 4 batches of 6 sentences; {SAME}",
    ),
    "the same numbers of both": (
        over([[0], [1, 2, 3], [4], [5]]),
        f"{BATCHES} 4 batches of 6 sentences, but the checkpoint has different batches; {SAME}",
    ),
    "seed": (
        over(SIX, seed=4),
        "--seed or --update-ordered-indices-seed: this run shuffles with seed 4, but the checkpoint was saved within an epoch shuffled "
        f"with seed 3; give the same seed, {RESET}",
    ),
    "grouped shuffling": (
        over(SIX, grouped_shuffling=True),
        f"--grouped-shuffling: is given, but the checkpoint was saved within an epoch without this flag; remove the flag, {RESET}",
    ),
}


def state_after(batches, iterator):
    """Return the state of an iterator after a number of batches."""
    list(itertools.islice(iterator.next_epoch_itr(), batches))
    return iterator.state_dict()


@pytest.mark.parametrize("other", OTHERS)
def test_other_batches_are_refused_only_within_an_epoch(other):
    iterator, message = OTHERS[other]
    with pytest.raises(InputError) as refusal:
        iterator.load_state_dict(state_after(1, over(SIX)))
    assert str(refusal.value) == message
    iterator.load_state_dict(state_after(4, over(SIX)))
    assert iterator.next_epoch_itr().n == 0 and iterator.epoch == 2


def test_a_checkpoint_without_batches_loads_if_the_epoch_is_long_enough():
    state = state_after(3, over(SIX))
    del state["batches"]
    same, other = over(SIX), over([[0, 1], [2, 3], [4, 5]])
    same.load_state_dict(state)
    assert len(same.epoch_batch_sampler.batches) == 1
    with pytest.raises(InputError) as refusal:  # plain fairseq: RuntimeError, "dataloader mismatch"
        other.load_state_dict(state)
    assert (
        str(refusal.value)
        == f"{BATCHES} 3 batches in an epoch, but the checkpoint was saved after 3 batches of an epoch; {SAME}"
    )


def test_the_batches_of_a_training(toy_data, tmp_path):
    """160 sentences make 10 updates of 16. After 4 updates 96 sentences are left: 2 updates of 3 batches of 16."""
    flags = "--reservoir-encoder L --decoder-layers 1 --batch-size 16 --max-epoch 1 --disable-validation".split()
    train(toy_data, *flags, "--max-update", 4, "--save-dir", tmp_path)
    message, status = error_of(toy_data, *flags, "--batch-size", 8, "--save-dir", tmp_path)
    saved = "the checkpoint was saved in the middle of an epoch of 10 batches of 160 sentences"
    batches = f"this run has 20 batches of 160 sentences, but {saved}"
    assert status != 0 and batches in message and message.count("\n") == 1
    train(toy_data, *flags, "--update-freq", 3, "--save-dir", tmp_path)
    state = load(tmp_path)
    assert state["optimizer_history"][-1]["num_updates"] == 4 + 2
    assert state["extra_state"]["train_iterator"]["epoch"] == 2

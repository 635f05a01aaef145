"""Steps of a model with one embedding: the loss is the sum of the embedded targets, so the gradient counts the tokens."""

import numpy as np
import pytest
import torch
from torch import nn

from fairseq_reservoir.speed.graphs.padding import Padder
from fairseq_reservoir.speed.graphs.steps import GraphedSteps
from tests.support.graphs import Rerun

PAD, END = 1, 2
BUCKETS = np.array([[2, 2], [2, 4]])


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(6))

    def set_num_updates(self, number):
        pass

    def forward(self, tokens):
        return self.weight[tokens]


class Wrapper(nn.Module):
    """As fairseq's wrappers of several ranks."""

    def __init__(self, module):
        super().__init__()
        self.module, self.set_num_updates = module, module.set_num_updates

    def forward(self, tokens):
        return self.module(tokens)


def criterion(model, sample):
    target = sample["target"]
    loss = model(target)[target.ne(PAD)].sum()
    return loss, sample["ntokens"], {"loss": loss.detach()}


class Memory(Rerun):
    """Device memory for shapes that need at most ``room`` bytes. A step needs ``needed`` bytes, or fails if it is None."""

    def __init__(self, room):
        self.room, self.needed, self.calls = room, 1, []

    def measured(self, run):
        if self.needed is None:
            raise torch.cuda.OutOfMemoryError("CUDA out of memory")
        return run(), self.needed

    def has_room(self, needed):
        self.calls.append(needed)
        return needed <= self.room

    def forget(self):
        self.calls.append("forget")


def batch(*rows):
    tokens = torch.tensor(rows)
    return {
        "nsentences": len(rows),
        "ntokens": tokens.numel(),
        "net_input": {"src_tokens": tokens, "src_lengths": torch.full((len(rows),), tokens.shape[1])},
        "target": tokens,
    }


class Training:
    def __init__(self, recorder, wrapped=False):
        self.inner = Model()
        self.model = Wrapper(self.inner) if wrapped else self.inner
        self.usual_calls = 0
        self.steps = GraphedSteps(recorder, self.usual)
        self.steps.padder = Padder(BUCKETS, PAD, END)

    def usual(self, sample, model, criterion, optimizer, update_num, ignore_grad):
        self.usual_calls += 1
        loss, size, log = criterion(model, sample)
        loss.backward()
        return loss, size, log

    def update(self, *batches):
        """One update. Returns the gradient."""
        self.inner.weight.grad = None
        for sample in map(self.steps.packed, batches):
            sample = sample if isinstance(sample, dict) else sample.batch()
            self.steps.train_step(sample, self.model, criterion, None, 0)
        return self.inner.weight.grad.tolist()


def test_gradients_of_a_batch_without_a_bucket_count_in_an_update_of_several():
    training = Training(Rerun())
    for _ in range(3):
        assert training.update(batch([3, 3])) == [0, 0, 0, 2, 0, 0]
    too_long = batch([4, 4, 4, 4, 5])
    assert training.update(too_long, batch([3, 3])) == [0, 0, 0, 2, 4, 1]
    assert training.update(batch([3, 3]), too_long, batch([3, 5])) == [0, 0, 0, 3, 4, 2]
    assert training.usual_calls == 2 and training.steps.kinds["replayed"] == 5


def test_a_replay_keeps_the_results_of_the_previous_one():
    """A replay writes to the memory of the recording."""
    training = Training(Rerun())
    for _ in range(3):
        training.update(batch([3, 3]))
    losses = []
    for value in (1, 2):
        training.inner.weight.data.fill_(value)
        sample = training.steps.packed(batch([3, 3])).batch()
        losses.append(training.steps.train_step(sample, training.model, criterion, None, 0)[2]["loss"])
    assert training.steps.kinds["replayed"] == 4 and [float(loss) for loss in losses] == [2, 4]


@pytest.mark.parametrize("wrapped", [False, True])
def test_hooks_see_every_layer(wrapped):
    """fairseq's NaN detector adds hooks to the model inside a wrapper."""
    training = Training(Rerun(), wrapped)
    for _ in range(3):
        training.update(batch([3, 3]))
    assert training.usual_calls == 0
    seen = []
    training.inner.register_forward_hook(lambda *given: seen.append(1))
    training.update(batch([3, 3]))
    assert training.usual_calls == 1 and len(seen) == 1


def test_a_parameter_that_a_task_replaces_at_an_epoch():
    training = Training(Rerun())
    for _ in range(3):
        training.update(batch([3, 3]))
    training.steps.collect_tensors_again()  # nothing was replaced
    training.update(batch([3, 3]))
    assert len(training.steps.recordings) == 1
    training.inner.weight = nn.Parameter(torch.ones(6))
    training.steps.collect_tensors_again()
    assert training.update(batch([3, 3])) == [0, 0, 0, 2, 0, 0]
    assert not training.steps.recordings


def test_a_pool_without_recordings_is_forgotten():
    memory = Memory(room=5)
    training = Training(memory)
    for _ in range(2):
        training.update(batch([3, 3]))
    assert len(training.steps.recordings) == 1
    memory.needed, memory.calls = 9, []
    for _ in range(2):
        training.update(batch([3, 3, 3]))
    # The one recording is dropped for room, and then the room of the empty pool does not count as used any more.
    assert memory.calls == [9, "forget", 9] and not training.steps.recordings


def test_a_training_goes_on_after_a_first_step_without_memory():
    memory = Memory(room=5)
    training = Training(memory)
    for _ in range(2):
        training.update(batch([3, 3]))
    memory.needed, memory.calls = None, []
    with pytest.raises(torch.cuda.OutOfMemoryError):
        training.update(batch([3, 3, 3]))
    training.steps.drop_recordings()  # by the trainer
    assert memory.calls == ["forget"] and not training.steps.recordings
    memory.needed = 1
    assert training.update(batch([3, 3, 3])) == [0, 0, 0, 3, 0, 0]
    assert training.update(batch([3, 3])) == [0, 0, 0, 2, 0, 0]
    assert len(training.steps.recordings) == 1

"""Shapes of the engine: when a step is recorded, and when the search moves to another shape."""

import gc
import weakref

import pytest

from fairseq_reservoir.layers.adapters.adapted_linear import SharedProjections
from fairseq_reservoir.speed.generation import engine as engines, generator
from fairseq_reservoir.speed.generation.buckets import Sizes
from tests.support.beam_searches import assert_same, batch, generators, model, use_on_cpu


class Counting:
    """A recorder that counts recordings and replays."""

    def __init__(self):
        self.recorded = self.replays = 0

    def record(self, function):
        self.recorded += 1

        def replay():
            self.replays += 1
            function()

        return replay


@pytest.fixture
def recorder(monkeypatch):
    use_on_cpu(monkeypatch)
    found = Counting()
    monkeypatch.setattr(generator, "recorder_of", lambda device: found)
    return found


def shapes_of(model):
    return list(generator._engines[model][1].shapes)


def test_each_shape_runs_once_before_it_is_recorded(recorder):
    found = model()
    _, ours = generators(found, 2, max_len_b=11)
    ours.generate([], batch([5, 9, 7]))
    assert shapes_of(found) == [Sizes(3, 16, 32)]
    assert (recorder.recorded, recorder.replays) == (1, 11)
    ours.generate([], batch([4, 8, 3], seed=2))
    assert (recorder.recorded, recorder.replays) == (1, 23)


def test_growing_and_shrinking(recorder, monkeypatch):
    """Sentences that end early leave the batch, and the cache grows for the others. The hypotheses stay fairseq's."""
    monkeypatch.setattr(engines, "LOGITS_WORTH_A_SHAPE", 100)
    found = model(3, sharpness=8.0, ends=3.0)
    theirs, ours = generators(found, 2, max_len_b=60)
    given = batch([3, 14, 5, 2, 12, 9, 4, 20])
    expected = theirs.generate([], given)
    assert sorted(max(len(one["tokens"]) for one in row) for row in expected) == [6, 7, 11, 14, 15, 15, 59, 61]
    assert_same(ours.generate([], given), expected)
    # Two sentences are left after 16 steps.
    assert shapes_of(found) == [Sizes(8, 32, 48), Sizes(2, 32, 48), Sizes(2, 32, 96)]
    monkeypatch.setattr(engines, "LOGITS_WORTH_A_SHAPE", 10_000)
    ours.generate([], batch([3, 14, 5, 2, 12, 9, 4, 20]))
    assert shapes_of(found)[-1] == Sizes(8, 32, 96)


def test_the_oldest_shape_is_dropped(recorder, monkeypatch):
    monkeypatch.setattr(engines, "MOST_SHAPES", 2)
    found = model()
    theirs, ours = generators(found, 1, max_len_b=5)
    for lengths in ([3], [3, 5], [2, 6, 4], [4]):
        given = batch(lengths)
        assert_same(ours.generate([], given), theirs.generate([], given))
    assert [sizes.batch for sizes in shapes_of(found)] == [3, 1]


def test_too_little_memory_for_two_shapes(recorder):
    found = model()
    _, ours = generators(found, 1, max_len_b=5)
    ours.generate([], batch([3]))
    engine = generator._engines[found][1]
    engine.most_bytes = 1
    ours.generate([], batch([3, 4]))
    assert [sizes.batch for sizes in engine.shapes] == [2]


def test_a_dropped_engine_is_freed_at_once(recorder):
    """After an error for too little memory, fairseq's own search needs the memory of the dropped engine."""
    found = model()
    _, ours = generators(found, 2, max_len_b=5)
    ours.generate([], batch([3]))
    gc.disable()
    try:
        engine = weakref.ref(generator._engines.pop(found)[1])
        assert engine() is None
    finally:
        gc.enable()


def test_a_failed_capture(monkeypatch, caplog):
    class Failing:
        def record(self, run):
            raise RuntimeError("operation not permitted\nwhen stream is capturing")

    use_on_cpu(monkeypatch)
    monkeypatch.setattr(generator, "recorder_of", lambda device: Failing())
    found, given = model(), batch([5, 9, 7])
    theirs, ours = generators(found, 2, max_len_b=5)
    assert_same(ours.generate([], given), theirs.generate([], given))
    reason = "a step could not be captured and runs without a graph: operation not permitted"
    assert caplog.messages == [f"--cuda-graphs: {reason}"]
    assert generator._engines[found][1].recorder is None


def test_other_settings_or_moved_weights_need_new_graphs(recorder):
    found = model()
    _, ours = generators(found, 2, max_len_b=5)
    ours.generate([], batch([3]))
    first = generator._engines[found][1]
    ours.generate([], batch([3]))
    assert generator._engines[found][1] is first
    ours.min_len = 2
    ours.generate([], batch([3]))
    second = generator._engines[found][1]
    assert second is not first
    found.double().float()
    ours.generate([], batch([3]))
    assert generator._engines[found][1] is not second


def test_moved_tensors_outside_the_decoder_need_new_graphs(recorder):
    """VeRA's matrices are registered in the model, but used in the decoder."""
    found = model(decoder="TT", freeze="ffn", frozen_adapter="vera")
    _, ours = generators(found, 2, max_len_b=5)
    ours.generate([], batch([3]))
    first = generator._engines[found][1]
    shared = next(module for module in found.modules() if isinstance(module, SharedProjections))
    assert all(shared is not module for module in found.decoder.modules())
    shared.double().float()
    ours.generate([], batch([3]))
    assert generator._engines[found][1] is not first

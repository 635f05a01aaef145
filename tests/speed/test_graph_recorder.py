"""The calls of ``GraphRecorder`` to CUDA and their order. ``tests/gpu`` runs the graphs on a GPU."""

import gc

import pytest
import torch

from fairseq_reservoir.speed.graph_recorder import GraphRecorder


@pytest.fixture
def calls(monkeypatch):
    """Replace the functions of CUDA that need a GPU, and return the list of their calls."""
    calls = []

    class Graph:
        def capture_begin(self, pool, capture_error_mode):
            calls.append(f"begin in {pool} ({capture_error_mode})")
            self._pool = pool or f"pool {len(calls)}"

        def capture_end(self):
            calls.append("end")

        def pool(self):
            return self._pool

        def replay(self):
            calls.append("replay")

    monkeypatch.setattr(torch.cuda, "CUDAGraph", Graph)
    for name in ("synchronize", "empty_cache"):
        monkeypatch.setattr(torch.cuda, name, lambda *_, name=name: calls.append(name))
    return calls


@pytest.fixture
def recorder():
    return GraphRecorder(torch.device("cuda", 0))


def taken(calls):
    """Return the calls so far, and forget them."""
    found = list(calls)
    calls.clear()
    return found


def test_recordings_share_a_pool_until_it_is_forgotten(calls, recorder):
    def run():
        calls.append("run" if not gc.isenabled() else "the garbage collector is enabled")
        return "result"

    replay = recorder.record(run, 5)
    assert taken(calls) == ["synchronize", "empty_cache", "begin in None (thread_local)", "run", "end"]
    assert gc.isenabled()
    assert replay() == "result"
    assert taken(calls) == ["replay"]
    recorder.record(run, 3)
    assert taken(calls)[2] == "begin in pool 3 (thread_local)"
    assert recorder.largest == 5
    recorder.forget()
    assert recorder.largest == 0
    recorder.record(run)  # a beam search has no use for an empty cache
    assert taken(calls) == ["synchronize", "begin in None (thread_local)", "run", "end"]


@pytest.mark.parametrize("free, room", [(0, False), (2**30 // 4 + 2**28, False), (2**30 // 4 + 2**28 + 1, True)])
def test_a_pool_may_grow_for_a_graph_of_the_same_size(calls, recorder, monkeypatch, free, room):
    """A pool whose free memory is in pieces grows, and too little memory during a recording ends the training."""
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (free, 2**40))
    recorder.record(lambda: None, 2**30)
    assert recorder.has_room(2**30) is room


def test_a_failed_recording_adds_no_memory(calls, recorder):
    """The pool still has room for only 5 bytes, so ``has_room`` must ask for the other 2."""
    recorder.record(lambda: None, 5)

    def fail():
        raise RuntimeError("the cause")

    with pytest.raises(RuntimeError, match="the cause"):
        recorder.record(fail, 7)
    assert taken(calls)[-2:] == ["begin in pool 3 (thread_local)", "end"]
    assert gc.isenabled()
    assert recorder.largest == 5


def test_the_recorder_does_not_keep_graphs(calls, recorder):
    """The memory of a training's graphs is freed as soon as its recordings are dropped."""
    recorder.record(lambda: None, 5)
    graph_class = torch.cuda.CUDAGraph
    assert not [found for found in gc.get_objects() if isinstance(found, graph_class)]

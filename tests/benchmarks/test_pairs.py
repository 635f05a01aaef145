"""benchmarks/pairs.py: its arithmetic by hand."""

from importlib import metadata

import pytest
import torch

from benchmarks import pairs


def test_ratio_is_the_median_of_the_ratios_pair_by_pair():
    # 3/2 = 1.5, 2/4 = 0.5, 10/10 = 1. The ratio of the medians would be 3/4.
    result = pairs.compare([2.0, 4.0, 10.0], [3.0, 2.0, 10.0])
    assert result["ratios"] == [1.5, 0.5, 1.0]
    assert result["ratio"] == 1.0


def test_interval_of_two_pairs():
    # Two draws of 1 and 3 have the median 1, 2, 2 or 3, each with probability 1/4 > 2.5 %.
    result = pairs.compare([1.0, 1.0], [1.0, 3.0])
    assert (result["low"], result["ratio"], result["high"]) == (1.0, 2.0, 3.0)


def test_one_slow_step_in_forty_does_not_move_the_interval():
    result = pairs.compare([1.0] * 40, [1.0] * 39 + [50.0])
    assert (result["low"], result["ratio"], result["high"]) == (1.0, 1.0, 1.0)


def test_pairs_alternate_their_order():
    run = []

    def step(name, seconds):
        return lambda: run.append(name) or seconds

    assert pairs.time_pairs(step("A", 1.0), step("B", 2.0), 3) == ([1.0] * 3, [2.0] * 3)
    assert run == list("ABBAAB")


def test_rounds_run_the_baseline_once_and_go_to_and_fro():
    run, kept = [], []

    class Arm:
        flags = ""

        def __init__(self, name, *seconds):
            self.name, self.seconds = name, list(seconds)

        def step(self):
            run.append(self.name)
            return self.seconds.pop(0)

    arms = [Arm("A", 1.0, 2.0, 4.0), Arm("B", 2.0, 2.0, 2.0), Arm("C", 1.0, 1.0, 1.0)]
    found = pairs.measure_in_rounds(arms, 3, 0, lambda results, done: kept.append((done, results)))
    assert run == list("ABCCBAABC")
    assert [arm.get("ratios") for arm in found] == [None, [2.0, 1.0, 0.5], [1.0, 0.5, 0.25]]
    # After the first round, and after all rounds.
    assert kept[0][0] == 1 and kept[0][1][1]["ratios"] == [2.0] and kept[-1] == (3, found)


def test_a_result_names_versions_and_machine():
    facts = pairs.surroundings("cpu", 3)
    said = pairs.how_measured(facts)
    assert "the median over 3 interleaved pairs" in said
    assert (
        f"torch {torch.__version__}, fairseq" in said
        and f"{metadata.version(facts['fairseq'].split()[0])} and Python 3." in said
    )
    assert (
        facts["commit"] in said
        and f"{facts['device']} with {facts['threads']} of {facts['cores']} CPU threads." in said
    )


def test_the_commit_where_there_is_no_git(monkeypatch):
    monkeypatch.setenv("COMMIT", "abc")
    monkeypatch.setenv("GIT_DIR", "/nowhere")
    assert pairs.commit() == "abc"
    monkeypatch.setenv("PATH", "/nowhere")  # as if git were not installed
    assert pairs.commit() == "abc"
    monkeypatch.delenv("COMMIT")
    assert pairs.commit() == "unknown"


class Fake:
    """An arm with a step that takes ``seconds`` or raises an error."""

    flags = ""

    def __init__(self, name, seconds=1.0, error=None):
        self.name, self.seconds, self.error = name, seconds, error

    def step(self):
        if self.error:
            raise self.error
        return self.seconds


def test_an_arm_without_enough_memory_is_marked_and_the_others_are_timed():
    too_large = Fake("large", error=torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has"))
    arms = [Fake("plain"), too_large, pairs.Absent("larger", "", "no room"), Fake("twice", 2.0)]
    found = pairs.measure(arms, 3, warm_up=1)
    reason = "too little memory: CUDA out of memory. Tried to allocate 2.00 GiB"
    assert [arm.get("absent") for arm in found] == [None, reason, "no room", None]
    assert found[0]["seconds"] == 1.0 and found[3]["ratio"] == 2.0
    assert pairs.table(found)[3].startswith(f"| large | {reason} |")


def test_without_a_baseline_nothing_is_timed():
    found = pairs.measure([pairs.Absent("plain", "", "no room"), Fake("other")], 3, warm_up=1)
    assert [arm["absent"] for arm in found] == ["no room", "its baseline is absent"]
    assert not pairs.check_promise(found, "other", 1.0)["holds"]


def test_a_baseline_alone_has_its_seconds():
    assert pairs.measure([Fake("plain", 3.0), pairs.Absent("other", "", "no room")], 2, warm_up=0)[0]["seconds"] == 3.0


def test_other_errors_are_not_taken_for_want_of_memory():
    with pytest.raises(RuntimeError, match="mixed devices"):
        pairs.measure([Fake("plain"), Fake("wrong", error=RuntimeError("mixed devices"))], 1, warm_up=0)


@pytest.mark.parametrize(
    "said",
    [
        "CUDA error: out of memory\nCUDA kernel errors might be asynchronously reported",
        "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
        "cuDNN error: CUDNN_STATUS_ALLOC_FAILED",
    ],
)
def test_memory_that_is_not_of_torchs_allocator(said):
    assert pairs.absent("x", "", RuntimeError(said)).reason == f"too little memory: {said.splitlines()[0]}"


def test_torchs_message_on_a_cpu_counts_as_well():
    with pytest.raises(RuntimeError) as refused:
        torch.empty(10**15)
    assert pairs.absent("x", "", refused.value).reason.startswith(
        "too little memory: DefaultCPUAllocator: can't allocate memory: you tried to allocate 4000000000000000 bytes"
    )

"""benchmarks/pairs.py: its arithmetic by hand."""

from importlib import metadata

import torch

from benchmarks import pairs


def test_ratio_is_the_median_of_the_ratios_pair_by_pair():
    # 3/2 = 1.5, 2/4 = 0.5, 10/10 = 1; the ratio of the medians, 3/4, is another number.
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
    # After the first round, and after all.
    assert kept[0][0] == 1 and kept[0][1][1]["ratios"] == [2.0] and kept[-1] == (3, found)


def test_a_result_says_what_it_was_measured_with():
    facts = pairs.surroundings("cpu", 3)
    said = pairs.how_measured(facts)
    assert said.startswith("Medians of the ratios of 3 interleaved pairs")
    assert (
        f"torch {torch.__version__}, fairseq" in said
        and f"{metadata.version(facts['fairseq'].split()[0])}, Python 3." in said
    )
    assert facts["commit"] in said and f" of {facts['cores']} threads." in said

"""The paired bootstrap over sentences gives sacreBLEU's numbers, and leaves out pairs that do not match."""

import pytest
from sacrebleu.metrics import BLEU
from sacrebleu.significance import PairedTest

from fairseq_reservoir.studies.report.arms import group
from fairseq_reservoir.studies.report.bootstrap import SAMPLES, paired_bootstrap, remark_other_test_sets
from fairseq_reservoir.studies.report.runs import find_runs
from fairseq_reservoir.studies.report.translations import read_test
from tests.support.logs import generated, plain_run
from tests.support.runs_of_a_study import REFERENCES, translations


def write_two_arms(folder, ours, theirs):
    """Write a run of arm a and one of arm b, and return their arms and tests."""
    for arm, layers, lines in (("a", 2, ours), ("b", 3, theirs)):
        plain_run(folder / f"{arm}-1", [10], [4], layers=layers).write()
        generated(folder / f"{arm}-1", REFERENCES, lines)
    runs = find_runs([folder])
    return group(runs), {run.name: read_test(run.folder, None) for run in runs}


@pytest.mark.parametrize("seed", ["12345", "7"])
@pytest.mark.parametrize("quality", [3, 11, 13])
def test_numbers_equal_sacrebleus(tmp_path, monkeypatch, quality, seed):
    """sacreBLEU resamples in float32, so an interval may differ in the sixth digit."""
    monkeypatch.setenv("SACREBLEU_SEED", seed)
    ours, theirs = translations(12), translations(quality)
    arms, tests = write_two_arms(tmp_path, ours, theirs)
    (pair,) = paired_bootstrap(arms, arms[0], tests)
    trial = PairedTest([("a", ours), ("b", theirs)], {"BLEU": BLEU()}, [REFERENCES], test_type="bs", n_samples=SAMPLES)
    signatures, found = trial()
    baseline, other = found["BLEU"]
    assert (pair.baseline, pair.bleu) == pytest.approx((baseline.score, other.score))
    assert (pair.interval, pair.p) == pytest.approx((other.ci, other.p_value), rel=1e-5)
    assert pair.signature == str(signatures["BLEU"])


SOME = translations(12)
EQUAL = {
    "in every letter": (SOME, SOME),
    "in every word": (SOME, [line.replace(" ", "  ") for line in SOME]),
    "without a right word": (["all wrong"] * len(SOME), ["wrong, too"] * len(SOME)),
}


@pytest.mark.parametrize("how", EQUAL)
def test_equal_translations_have_p_1(tmp_path, how):
    arms, tests = write_two_arms(tmp_path, *EQUAL[how])
    (pair,) = paired_bootstrap(arms, arms[0], tests)
    assert pair.bleu == pair.baseline and pair.p == 1


def test_pairs_have_one_seed_and_one_test_set(tmp_path):
    for seed in (1, 2):
        for arm, layers, quality in (("a", 2, 15), ("b", 3, 5)):
            plain_run(tmp_path / f"{arm}-{seed}", [10], [4], seed=seed, layers=layers).write()
            generated(tmp_path / f"{arm}-{seed}", REFERENCES, translations(quality))
    generated(tmp_path / "b-2", REFERENCES[:10], translations(5)[:10])
    runs = find_runs([tmp_path])
    arms = group(runs)
    tests = {run.name: read_test(run.folder, None) for run in runs}
    (pair,) = paired_bootstrap(arms, arms[0], tests)
    assert (pair.arm, pair.seed) == ("b", 1) and pair.bleu < pair.baseline and 0 < pair.p <= 0.05
    assert paired_bootstrap(arms, arms[0], tests) == [pair]  # the random seed is fixed
    remark_other_test_sets(arms, arms[0], tests)
    assert {name: test.remarks for name, test in tests.items() if test.remarks} == {
        "b-2": ["omitted from the paired bootstrap: scored against different references than a-2"]
    }

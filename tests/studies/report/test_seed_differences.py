"""Differences over seeds: Welch's formulas by hand, Student's distribution by numerical integration."""

import csv
import math
import statistics
import sys

import numpy as np
import pytest
from sacrebleu.metrics import BLEU, CHRF

from fairseq_reservoir.errors import InputError
from fairseq_reservoir.studies.report import ReportOptions, report
from fairseq_reservoir.studies.report.seed_differences import Difference, difference
from tests.support.logs import generated, plain_run


def within(bound, degrees):
    """Integrate the density of Student's distribution from -bound to bound, in steps of bound / 100,000."""
    middle = (np.arange(100_000) + 0.5) * bound / 100_000
    scale = math.gamma((degrees + 1) / 2) / math.gamma(degrees / 2) / math.sqrt(degrees * math.pi)
    return 2 * scale * ((1 + middle**2 / degrees) ** (-(degrees + 1) / 2)).sum() * bound / 100_000


def test_by_hand():
    """1, 2, 3 have mean 2 and variance 1. 2, 4, 6 have mean 4 and variance 4. The squared standard errors are 1/3 and 4/3."""
    found = difference([1.0, 2.0, 3.0], [2.0, 4.0, 6.0])
    error, degrees = math.sqrt(1 / 3 + 4 / 3), (5 / 3) ** 2 / ((1 / 3) ** 2 / 2 + (4 / 3) ** 2 / 2)
    assert degrees == pytest.approx(2.9412, abs=1e-4)
    assert found.value == -2.0
    assert within(found.interval / error, degrees) == pytest.approx(0.95, abs=1e-6)
    assert found.p == pytest.approx(1 - within(2.0 / error, degrees), abs=1e-6)
    assert found.interval > 2.0 and found.p > 0.05  # three seeds are too few for a difference of two deviations


def test_without_scipy(monkeypatch):
    """scipy is not installed beside a package without torch."""
    monkeypatch.setitem(sys.modules, "scipy", None)
    assert difference([1.0], [2.0, 4.0]) is None
    with pytest.raises(InputError, match="^t-tests over seeds need the package scipy, .*: pip install scipy$"):
        difference([1.0, 2.0], [2.0, 4.0])


@pytest.mark.parametrize("seed", range(8))
def test_any_two_arms(seed):
    random = np.random.default_rng(seed)
    ours, theirs = (list(random.normal(mu, sd, size)) for mu, sd, size in ((36, 0.3, 2 + seed % 4), (35.5, 1.2, 5)))
    found = difference(ours, theirs)
    errors = [statistics.variance(values) / len(values) for values in (ours, theirs)]
    degrees = sum(errors) ** 2 / sum(e**2 / (len(v) - 1) for e, v in zip(errors, (ours, theirs)))
    assert found.value == pytest.approx(statistics.mean(ours) - statistics.mean(theirs))
    assert within(found.interval / math.sqrt(sum(errors)), degrees) == pytest.approx(0.95, abs=1e-6)
    assert found.p == pytest.approx(1 - within(abs(found.value) / math.sqrt(sum(errors)), degrees), abs=1e-6)
    back = difference(theirs, ours)
    assert (back.value, back.interval, back.p) == pytest.approx((-found.value, found.interval, found.p))


def test_numbers_whose_powers_overflow():
    found = difference([2e90, 3e90], [5e90, 7e90])
    small = difference([2.0, 3.0], [5.0, 7.0])
    assert found.p == pytest.approx(small.p) and found.interval == pytest.approx(small.interval * 1e90)


def test_a_single_seed_has_no_difference_and_equal_seeds_no_interval():
    assert difference([36.0], [35.0, 35.5]) is None and difference([36.0, 36.2], [35.0]) is None
    assert difference([36.0, 36.0], [35.5] * 3) == Difference(0.5, None, None, (2, 3))


REFERENCES = [f"the {number} small red cats sat on the mat number {number} ." for number in range(20)]


def translations(score):
    """Return translations with score - 15 right lines."""
    return [line if n < int(score) - 15 else line.replace("cats", "dogs") for n, line in enumerate(REFERENCES)]


def test_in_a_report(tmp_path):
    """Two arms have three seeds. The third arm has a single seed, so it has no row."""
    scores = {"dense": [30.0, 31.0, 32.0], "frozen": [27.0, 28.5, 30.0], "lone": [29.0]}
    for layers, (arm, values) in enumerate(scores.items(), start=1):
        for seed, score in enumerate(values, start=1):
            folder = tmp_path / "runs" / f"{arm}-{seed}"
            plain_run(folder, [score - 5, score], [8, 8], seed=seed, layers=layers).write()
            generated(folder, REFERENCES, translations(score))
    report(ReportOptions([tmp_path / "runs"], tmp_path / "out", baseline="dense", figures=False))
    with open(tmp_path / "out" / "tables" / "over_seeds.csv", newline="") as file:
        (row,) = csv.DictReader(file)
    with open(tmp_path / "out" / "tables" / "results.csv", newline="") as file:
        table = {line["arm"]: line for line in csv.DictReader(file)}
    wanted = difference(scores["frozen"], scores["dense"])
    label = "BLEU (validation)"
    assert (row["arm"], row["seeds"]) == ("frozen", "3 and 3")
    found = [float(row[f"{label}: {what}"].removeprefix("'")) for what in ("difference", "95 % ±", "p")]
    assert found == pytest.approx([wanted.value, wanted.interval, wanted.p])
    apart = float(table["frozen"]["test sacreBLEU"]) - float(table["dense"]["test sacreBLEU"])
    assert float(row["test sacreBLEU: difference"].removeprefix("'")) == pytest.approx(apart)
    for label, metric in (("test sacreBLEU", BLEU()), ("test chrF", CHRF())):
        scored = {
            arm: [metric.corpus_score(translations(score), [REFERENCES]).score for score in scores[arm]]
            for arm in scores
        }
        wanted = difference(scored["frozen"], scored["dense"])
        found = [float(row[f"{label}: {what}"].removeprefix("'")) for what in ("difference", "95 % ±", "p")]
        assert found == pytest.approx([wanted.value, wanted.interval, wanted.p])


def only_row(folder):
    report(ReportOptions([folder / "runs"], folder / "out", baseline="dense", figures=False))
    with open(folder / "out" / "tables" / "over_seeds.csv", newline="") as file:
        (row,) = csv.DictReader(file)
    return row


def test_only_seeds_with_the_same_references_count(tmp_path):
    """One of the arm's three seeds has no translations, and one has another test set. A single score is left, so no difference."""
    for layers, arm in enumerate(("dense", "frozen"), start=1):
        for seed in (1, 2, 3):
            folder = tmp_path / "runs" / f"{arm}-{seed}"
            plain_run(folder, [20.0, 30.0 + seed / layers], [8, 8], seed=seed, layers=layers).write()
            if (arm, seed) != ("frozen", 3):
                lines = [line.upper() for line in REFERENCES] if (arm, seed) == ("frozen", 2) else REFERENCES
                generated(folder, lines, translations(25 + seed))
    row = only_row(tmp_path)
    assert row["seeds"] == "3 and 3" and row["BLEU (validation): p"] and row["test sacreBLEU: p"] == ""
    generated(tmp_path / "runs" / "frozen-2", REFERENCES, translations(20))
    row = only_row(tmp_path)
    assert row["seeds"] == "3 and 3; 2 and 3" and row["test sacreBLEU: p"]


def test_losses_of_test_texts(tmp_path):
    """3.1, 3.2 and 3.3 minus 3.0, 3.1 and 3.2 is one tenth."""
    for layers, arm in enumerate(("dense", "frozen"), start=1):
        for seed in (1, 2, 3):
            folder = tmp_path / "runs" / f"{arm}-{seed}"
            plain_run(folder, [20.0, 30.0 + seed / layers], [8, 8], seed=seed, layers=layers).write()
            (folder / "eval-lm.log").write_text(f"Loss (base 2): {2.8 + 0.1 * (seed + layers):.4f}, Perplexity: 1\n")
    row = only_row(tmp_path)
    assert float(row["test loss (bits): difference"]) == pytest.approx(0.1) and row["test loss (bits): p"]


def test_an_arm_beside_a_single_seed_has_no_table(tmp_path):
    for layers, arm in enumerate(("dense-1", "frozen-1", "frozen-2"), start=1):
        plain_run(tmp_path / "runs" / arm, [20, 30 + layers], [8, 8], seed=int(arm[-1]), layers=min(layers, 2)).write()
    report(ReportOptions([tmp_path / "runs"], tmp_path / "out", baseline="dense", figures=False))
    assert not (tmp_path / "out" / "tables" / "over_seeds.csv").exists()

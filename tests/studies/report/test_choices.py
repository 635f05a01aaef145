"""``--choose lr``: the best learning rate of each arm; ``--ignore lr`` and legends of ``--against``."""

import csv

import pytest

from fairseq_reservoir.errors import InputError
from fairseq_reservoir.studies.report import ReportOptions, measure, report
from fairseq_reservoir.studies.report.against import points
from fairseq_reservoir.studies.report.answers import answers
from fairseq_reservoir.studies.report.cautions import cautions
from tests.support.logs import plain_run


def train(folder, name, rate, bleu, seed=1, **options):
    """Write a run whose best BLEU is ``bleu``. Its loss is 10 - BLEU / 10, and a sweep chooses by the loss."""
    log = plain_run(folder / f"{name}-{seed}", [1, bleu], [4, 4], seed=seed, **options)
    log.lines = [line.replace("'lr': [0.002]", f"'lr': [{rate}]") for line in log.lines]
    return log.write()


@pytest.fixture
def study(tmp_path):
    """Seed 1 of two arms with three rates. Seeds 2 and 3 only with the best one: 2e-3 for deep, 1e-3 for flat. A third arm has one rate."""
    for layers, name, best in ((3, "flat", 1e-3), (6, "deep", 2e-3)):
        for text, bleu in (("1e-3", 20), ("2e-3", 21), ("4e-3", 12)):
            bleu = 25 if float(text) == best else bleu
            train(tmp_path / "runs", f"{name}-lr{text}", text, bleu, layers=layers)
            for seed in (2, 3) if float(text) == best else ():
                train(tmp_path / "runs", f"{name}-lr{text}", text, 17 + seed, seed, layers=layers)
    train(tmp_path / "runs", "lone-lr1e-3", "1e-3", 11, layers=9)
    return tmp_path


def test_the_best_rate_of_each_arm(study):
    """Only seed 1 is compared, which all rates have. The mean of the chosen rate over its seeds is below 21, that of another rate."""
    found = measure(ReportOptions([study / "runs"], choose="lr", baseline="flat"))
    assert [(arm.name, arm.seeds) for arm in found.arms] == [("deep", [1, 2, 3]), ("flat", [1, 2, 3]), ("lone", [1])]
    assert [choice.value for choice in found.search.choices] == [0.002, 0.001, 0.001]
    assert found.search.choices[0].tried == {0.001: [8.0], 0.002: [7.5], 0.004: [8.8]}  # losses
    assert [choice.at_end for choice in found.search.choices] == [False, True, False]
    assert {arm.name for arm in found.search.others} == {f"{name}-lr{rate}" for name, rate in _OTHERS}
    assert found.skipped == [] and {run.name for arm in found.arms for run in arm.runs} == set(found.measured)
    (lines,) = (lines for title, lines in cautions(found) if title == "Choice")
    assert lines == [
        "The chosen lr is the smallest or the largest tried value, so a value beyond it may be better: flat (0.001).",
        "Only one value of lr was tried: lone.",
    ]
    assert (
        answers(found)[-1].sentence
        == "2 arms have 3 seeds and 1 arm has 1 seed; 4 further runs served only to choose lr."
    )


_OTHERS = [("flat", "2e-3"), ("flat", "4e-3"), ("deep", "1e-3"), ("deep", "4e-3")]


def test_the_search_is_behind_a_fold(study):
    report(ReportOptions([study / "runs"], study / "out", choose="--lr", baseline="flat-lr1e-3-2", figures=False))
    page, text = ((study / "out" / name).read_text() for name in ("index.html", "report.md"))
    fold = page.split("<details>")[1].split("</details>")[0]
    assert fold.startswith("<summary>How lr was chosen for each arm, from 11 runs</summary>")
    assert fold.count("<tr>") == 2 + 3 and page.count("<details>") == 1 == text.count("<details>")
    assert ">deep</th>" in page and "deep-lr2e-3<" not in page.split('<section id="results">')[1].split("</section>")[0]
    with open(study / "out" / "tables" / "choices.csv", newline="") as file:
        rows = {row["arm"]: row for row in csv.DictReader(file)}
    assert rows["deep"]["chosen lr"] == "0.002" and rows["deep"]["loss (bits) with lr: 0.004"] == "8.8"
    assert rows["lone"]["loss (bits) with lr: 0.004"] == ""


def test_an_interrupted_run_is_not_chosen(study):
    log = study / "runs" / "flat-lr2e-3-1" / "train.log"
    log.write_text(log.read_text().replace('"valid_bleu": "21"', '"valid_bleu": "90"').replace("7.9", "1.0"))
    options = ReportOptions([study / "runs"], choose="lr")
    assert measure(options).search.choices[1].value == 0.002
    log.write_text("".join(line for line in log.read_text().splitlines(True) if "done training" not in line))
    assert measure(options).search.choices[1].value == 0.001


def test_a_baseline_that_was_not_chosen(study):
    with pytest.raises(InputError, match="--baseline deep-lr1e-3: no arm has this name; choose from deep, flat, lone"):
        measure(ReportOptions([study / "runs"], choose="lr", baseline="deep-lr1e-3"))
    with pytest.raises(InputError, match="--choose colour: the configurations of the runs do not have this key"):
        measure(ReportOptions([study / "runs"], choose="colour"))


def test_without_choose_a_warning_names_it(study):
    hint = "Some arms differ only in lr. --choose lr shows only the best arm of each such group."
    for options, wanted in (({}, 1), ({"against": "lr"}, 0), ({"choose": "lr"}, 0), ({"ignore": ["lr"]}, 0)):
        found = measure(ReportOptions([study / "runs"], **options))
        assert [line for _, lines in cautions(found) for line in lines].count(hint) == wanted


def test_ignore_merges_runs_that_differ_in_nothing_else(study):
    """Seed 1 occurs once with each rate."""
    found = measure(ReportOptions([study / "runs"], ignore=["lr"]))
    assert [(arm.name, sorted(arm.seeds)) for arm in found.arms] == [
        ("deep", [1, 1, 1, 2, 3]), ("flat", [1, 1, 1, 2, 3]), ("lone", [1]),
    ]  # fmt: skip
    (lines,) = (lines for title, lines in cautions(found) if title == "Arms")
    assert lines == [
        "deep and flat: runs differ in optimization.lr (0.001, 0.002, 0.004).",
        "Some runs of an arm have the same seed, but count as different seeds in means and intervals: deep and flat.",
    ]
    assert answers(found)[-1].sentence == "2 arms have 3 seeds in 5 runs and 1 arm has 1 seed."
    train(study / "runs", "again-lr4e-3", "4e-3", 12, layers=3)  # the same seed and rate in a second folder
    names = [arm.name for arm in measure(ReportOptions([study / "runs"], ignore=["lr"])).arms]
    assert names == ["again", "deep", "flat", "lone"]


def test_series_have_the_names_of_what_is_compared(study):
    found = points(measure(ReportOptions([study / "runs"], against="lr")))
    assert [(point.series, point.value) for point in found] == [
        ("deep", 0.001), ("deep", 0.002), ("deep", 0.004), ("flat", 0.001), ("flat", 0.002), ("flat", 0.004), ("lone", 0.001),
    ]  # fmt: skip


def test_series_without_a_common_name_are_named_by_their_flags(tmp_path):
    for name, layers, rate in (("a", 3, "1e-3"), ("b", 3, "2e-3"), ("c", 6, "1e-3"), ("d", 6, "2e-3")):
        train(tmp_path, name, rate, 20, layers=layers)
    found = points(measure(ReportOptions([tmp_path], against="lr")))
    assert [point.series for point in found] == ["encoder_layers 3"] * 2 + ["encoder_layers 6"] * 2


def test_series_by_their_names(tmp_path):
    """3-deep and 6-deep also differ in the dropout. Of each, the better rate is chosen."""
    for layers, dropout in ((3, 0.1), (6, 0.3)):
        for rate, bleu in (("1e-3", 20), ("2e-3", 25)):
            folder = train(tmp_path, f"{layers}-deep-lr{rate}", rate, bleu, layers=layers)
            log = folder / "train.log"
            log.write_text(log.read_text().replace("activation_fn=relu", f"activation_fn=relu, dropout={dropout}"))
    train(tmp_path, "other-lr1e-3", "1e-3", 10, layers=9)
    found = points(measure(ReportOptions([tmp_path], against="encoder_layers", choose="lr")))
    assert [(point.series, point.arm, point.value) for point in found] == [
        ("deep", "3-deep", 3), ("deep", "6-deep", 6), ("other", "other", 9),
    ]  # fmt: skip

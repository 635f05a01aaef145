"""Warnings that a report prints at its end, once and by their kind."""

import csv

import pytest

from fairseq_reservoir.studies.report import ReportOptions, find_runs, measure, report
from fairseq_reservoir.studies.report.cautions import cautions
from fairseq_reservoir.studies.report.metrics import Metric
from tests.support.logs import Writer, plain_run


def warnings(folder, word, **options):
    """Return the warnings of a report that contain a word."""
    found = cautions(measure(ReportOptions([folder], **options)))
    return [line for _, lines in found for line in lines if word in line]


def test_arms_without_flops_are_named_with_the_reason(tmp_path):
    plain_run(tmp_path / "a-1", [10], [4]).write()
    assert warnings(tmp_path, "FLOPs") == []
    old = plain_run(tmp_path / "a-2", [10], [4], seed=2).write() / "train.log"
    old.write_text("".join(line for line in old.read_text().splitlines(True) if not line.startswith("backward")))
    plain_run(tmp_path / "b-1", [10], [4], layers=6, mflop=None).write()
    first, second = warnings(tmp_path, "FLOPs")
    assert first.startswith(
        "No FLOPs for b: the log has no slot table, because the plugin prints it only for its own architectures"
    )
    assert (
        second
        == "No FLOPs for a (1 of 2 seeds): the log was written by an old version of the plugin, whose slot table has no line"
        " for the backward pass."
    )
    (tmp_path / "a-1" / "train.log").unlink()
    old.unlink()
    assert warnings(tmp_path, "FLOPs") == []  # no run used the plugin


def test_losses_of_other_data_are_named_and_bleu_is_not(tmp_path):
    for arm, data in (("a", "bin-pieces"), ("b", "bin-characters")):
        folder = plain_run(tmp_path / f"{arm}-1", [10], [4], layers=len(data)).write()
        log = folder / "train.log"
        log.write_text(log.read_text().replace("'task': {", f"'task': {{'data': '{data}', "))
    (caution,) = warnings(tmp_path, "different data", metric="loss")
    assert caution.startswith(
        "These runs were trained on different data: bin-characters (valid) and bin-pieces (valid). Their losses"
    )
    assert warnings(tmp_path, "different data") == []  # the metric is BLEU
    log.write_text(log.read_text().replace("bin-characters", "bin-pieces"))
    assert warnings(tmp_path, "different data", metric="loss") == []


def test_seeds_of_different_speed(tmp_path):
    """20 updates take 20 s. A fifth more still counts as the same machine."""
    plain_run(tmp_path / "a-1", [10], [20]).write()
    plain_run(tmp_path / "a-2", [10], [24], seed=2).write()
    assert warnings(tmp_path, "per update") == []
    plain_run(tmp_path / "a-2", [10], [25], seed=2).write()
    assert warnings(tmp_path, "per update") == [
        "The seeds of these arms differ in speed, so their times are unreliable: a (1 to 1.25 s per update)."
    ]


@pytest.mark.parametrize(
    "seconds, share",
    [([5, 5], None), ([5, 4], "11 %"), ([2, 1, 2], "30 %"), ([0, 0], "100 %")],  # 0.5 s of each epoch: 1 of 9, 1.5 of 5
)
def test_epochs_of_a_few_seconds(tmp_path, seconds, share):
    plain_run(tmp_path / "long-1", [10], [60]).write()
    plain_run(tmp_path / "short-1", [10] * len(seconds), seconds, layers=6).write()
    found = warnings(tmp_path, "whole seconds")
    assert [share in caution for caution in found] == ([] if share is None else [True])


def test_a_repeated_epoch_is_rounded_once(tmp_path):
    plain_run(tmp_path / "long-1", [10], [60]).write()
    log = plain_run(tmp_path / "short-1", [10, 10], [5, 5], layers=6)
    log.start(restored=20).epoch(40, 5, 100, 10).write()
    assert warnings(tmp_path, "whole seconds") == []  # 0.5 s for each of two epochs is a tenth of 10 s


def test_seconds_of_lost_updates_do_not_count_as_slow(tmp_path):
    plain_run(tmp_path / "a-1", [10], [20]).write()
    log = Writer(tmp_path / "a-2", seed=2).start()
    for update in (5, 10):
        log.inner(update, 5, 100, update)
    log.start(restored=0)
    for update in (5, 10, 15, 20):
        log.inner(update, 5, 100, update)
    log.valid(20, loss=9, bleu=10).epoch(20, 20, 100, 20).done().write()
    assert warnings(tmp_path, "per update") == []
    assert [run.seconds for run in find_runs([tmp_path])] == [20, 30]


def test_a_target_set_by_a_very_bad_run(tmp_path):
    plain_run(tmp_path / "a-1", [10, 25.8], [4, 4]).write()
    plain_run(tmp_path / "b-1", [1, 3.4], [4, 4], layers=6).write()
    assert warnings(tmp_path, "target") == [
        "The common target, 3.4, is the best score of the worst run. This is too easy, because a reaches 25.8. Set a"
        " better target with --target."
    ]
    assert warnings(tmp_path, "target", target=3.4) == []
    (of_loss,) = warnings(tmp_path, "target", metric="loss")
    assert of_loss.startswith(
        "The common target, 9.66, is the best score of the worst run. This is too easy, because a reaches 7.42"
    )
    plain_run(tmp_path / "b-1", [1, 13], [4, 4], layers=6).write()
    assert warnings(tmp_path, "target") == []


@pytest.mark.parametrize(
    "name, higher, fine, far",
    [
        ("bleu", True, 15.0, 14.9),
        ("loss", False, 31.0, 31.1),
        ("ppl", False, 60.0, 60.1),
    ],  # 1 bit more is twice the perplexity
)
def test_half_as_good_as_30(name, higher, fine, far):
    metric = Metric(name, higher, name)
    assert (metric.far_worse(fine, 30.0), metric.far_worse(far, 30.0)) == (False, True)


def test_a_log_that_begins_in_the_middle(tmp_path):
    """The log of seed 2 has only the last 40 of 80 updates, so its minutes cannot be compared with those of seed 1."""
    plain_run(tmp_path / "runs" / "a-1", [10, 20, 30, 40], [20] * 4).write()
    plain_run(tmp_path / "runs" / "b-1", [10, 20, 30, 40], [20] * 4, layers=4).write()
    log = Writer(tmp_path / "runs" / "a-2", seed=2).start(restored=40, epoch=3)
    for update, wall in ((60, 20), (80, 40)):
        for inner in range(update - 15, update + 1, 5):
            log.inner(inner, 5, 100, wall)
        log.valid(update, loss=10 - update / 20, bleu=update / 2).epoch(update, 20, 100, wall)
    log.done().write()
    report(ReportOptions([tmp_path / "runs"], tmp_path / "out", baseline="b", figures=False))
    said = (tmp_path / "out" / "report.md").read_text()
    assert "* **Times:** This log begins in the middle of training: a-2. The training time" in said
    assert said.index("# How each number") > said.index("## Warnings") > said.index("## Runs")
    with open(tmp_path / "out" / "tables" / "to_best.csv", newline="") as file:
        rates = {row["arm"]: row["seconds per update"] for row in csv.DictReader(file)}
    assert float(rates["a"]) == float(rates["b"]) == 1
    with open(tmp_path / "out" / "tables" / "steps_or_speed.csv", newline="") as file:
        ratios = {row["arm"]: row["to the best score: time ×"] for row in csv.DictReader(file)}
    assert ratios["a"] == "" and float(ratios["b"]) == 1


def test_each_warning_occurs_once_and_in_its_group(tmp_path):
    """Both runs of b were resumed, and b and c lack seed 2."""
    for name, layers, seeds in (("a", 3, (1, 2)), ("b", 4, (1,)), ("c", 5, (1,))):
        for seed in seeds:
            log = plain_run(tmp_path / "runs" / f"{name}-{seed}", [10], [20], seed=seed, layers=layers)
            if name == "b":
                log.lines = log.lines[:-1]
                log.start(restored=20).done()
                log.start(restored=20).done()
            log.write()
    report(ReportOptions([tmp_path / "runs"], tmp_path / "out", figures=False))
    page = (tmp_path / "out" / "index.html").read_text()
    for title, line in (
        ("Resumed runs", "b, seed 1 (twice)."),
        ("Seeds", "Seed 2 is missing: b and c (2 of 3 arms)."),
    ):
        assert page.count(f"<dt>{title}</dt><dd><p>{line}</p></dd>") == page.count(line) == 1
    assert '<a href="#warnings">2 warnings</a>' in page and page.index("<table>") < page.index('<h2 id="warnings">')

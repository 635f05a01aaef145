"""The sentences at the top of a report. Differences, intervals and p-values are recomputed with scipy."""

import pytest
from scipy.stats import ttest_ind

from fairseq_reservoir.cli import main
from fairseq_reservoir.studies.report import ReportOptions, answers, measure, report
from tests.support.logs import plain_run

SCORES = {"dense": [30.0, 31.0, 32.0], "frozen": [27.0, 28.5, 30.0], "better": [35.0, 36.0, 36.5], "lone": [50.0]}


def write(folder, scores):
    for layers, (arm, values) in enumerate(scores.items(), start=1):
        for seed, score in enumerate(values, start=1):
            plain_run(folder / f"{arm}-{seed}", [score - 5, score], [60, 60], seed=seed, layers=layers).write()
    return folder


def answered(folder, **options):
    return dict(answers(measure(ReportOptions([folder], **options))))


def welch(ours, theirs):
    """Return the interval of the difference as text, and p."""
    test = ttest_ind(SCORES[ours], SCORES[theirs], equal_var=False)
    low, high = test.confidence_interval()
    return f"95 % interval {low:+.2f} to {high:+.2f}".replace("-", "−"), float(test.pvalue)


def test_the_best_arm_against_the_baseline(tmp_path):
    """An arm with a single seed cannot be the best, because the others have three. Two comparisons are tested, so p is doubled."""
    found = answered(write(tmp_path, SCORES), baseline="dense")
    interval, p = welch("better", "dense")
    assert p < welch("frozen", "dense")[1] and 2 * p < 0.05
    assert list(found.items()) == [
        ("Which arm is best?", "better has the highest validation BLEU, 35.83."),
        ("By how much?", f"Validation BLEU: 4.83 higher than the baseline dense ({interval})."),
        (
            "Is that significant?",
            f"Validation BLEU: significant (p = {2 * p:.4f}, with Holm's correction for 2 comparisons).",
        ),
        (
            "How long does it train?",
            "better: 2.0 ± 0.0 minutes (40 updates) to its best score; dense (the baseline): 2.0 ± 0.0 minutes (40 updates) to its best"
            " score.",
        ),
        (
            "How large is it?",
            "better: 1,879,680 parameters, 1,417,344 of them trained; dense (the baseline): 1,879,680 parameters, 1,417,344 of them"
            " trained.",
        ),
        ("How many seeds?", "3 arms have 3 seeds and 1 arm has 1 seed."),
    ]


def test_the_baseline_is_compared_with_the_next_best_arm(tmp_path):
    """By the loss, which is 10 - BLEU / 10. The difference of 0.25 is not significant."""
    scores = {name: SCORES[name] for name in ("dense", "frozen")}
    found = answered(write(tmp_path, scores), metric="loss")
    p = welch("frozen", "dense")[1]
    assert found["Which arm is best?"] == "dense has the lowest validation loss, 6.900 bits."
    assert found["By how much?"].startswith(
        "Validation loss: 0.250 bits lower than frozen, the next best arm (95 % interval −0."
    )
    assert found["Is that significant?"] == f"Validation loss: no significant difference (p = {p:.4f})."
    assert found["How many seeds?"] == "3 seeds for each arm."


def test_times_and_sizes_begin_with_the_best_arm(tmp_path):
    """The baseline comes first in the tables."""
    found = answered(write(tmp_path, {"a": [30.0, 30.5], "b": [31.0, 31.5]}), baseline="a")
    for question in ("How long does it train?", "How large is it?"):
        assert found[question].startswith("b: ") and "; a (the baseline): " in found[question]


def test_single_seeds_are_not_tested(tmp_path):
    found = answered(write(tmp_path, {"dense": [30.0], "frozen": [31.0]}))
    assert found["By how much?"] == "Validation BLEU: 1.00 higher than the baseline dense (no interval over seeds)."
    assert found["Is that significant?"] == "Validation BLEU: not tested, because both arms need two seeds or more."
    assert found["How many seeds?"] == "1 seed for each arm."


def test_equal_seeds_are_not_tested(tmp_path):
    found = answered(write(tmp_path, {"dense": [30.0, 30.0], "frozen": [31.0, 31.0]}))
    assert (
        found["Is that significant?"]
        == "Validation BLEU: not tested, because in each arm all seeds have the same score."
    )


def test_a_single_arm(tmp_path):
    found = answered(write(tmp_path, {"dense": [30.0]}))
    assert list(found) == ["How good is it?", "How long does it train?", "How large is it?", "How many seeds?"]
    assert found["How good is it?"] == "dense has the highest validation BLEU, 30.00."


def test_pre_registered_comparisons_come_first(tmp_path):
    found = answered(write(tmp_path, SCORES), comparisons=[("frozen", "dense"), ("lone", "dense")])
    interval, p = welch("frozen", "dense")
    (first, sentence), (second, untested), *_ = found.items()
    assert (first, second) == ("frozen or dense?", "lone or dense?")
    verdict = f"no significant difference (p = {2 * p:.4f}, with Holm's correction for 2 comparisons)"
    assert sentence == f"frozen: validation BLEU: 2.50 lower ({interval}), {verdict}."
    assert untested == "lone: validation BLEU: not tested, because both arms need two seeds or more."


def test_the_answers_open_every_output(tmp_path, capsys):
    write(tmp_path / "runs", SCORES)
    main(["report", str(tmp_path / "runs"), "--out", str(tmp_path / "out"), "--baseline", "dense", "--no-figures"])
    *lines, last = capsys.readouterr().out.splitlines()
    found = answered(tmp_path / "runs", baseline="dense")
    assert lines == [f"{question} {sentence}" for question, sentence in found.items()]
    out = tmp_path / "out"
    tables = len(list(out.glob("tables/*.csv")))
    written = f"report.md (the same page as Markdown) and tables/ ({tables} tables as CSV, LaTeX and Markdown)"
    assert last == f"{out}/index.html is the page: 4 arms, 10 runs, 0 left out. {out} also has {written}."
    assert tables > 3 and len(list(out.glob("tables/*.tex"))) == tables == len(list(out.glob("tables/*.md")))
    page, text = ((tmp_path / "out" / name).read_text() for name in ("index.html", "report.md"))
    for question, sentence in found.items():
        assert page.index(f"<dt>{question}</dt><dd>{sentence.replace(chr(39), '&#x27;')}</dd>") < page.index("<table>")
        assert text.index(f"* **{question}** ") < text.index("## Scores")


def test_a_page_has_no_raw_backticks_and_no_hyphen_as_a_minus_sign(tmp_path):
    write(tmp_path / "runs", SCORES)
    report(ReportOptions([tmp_path / "runs"], tmp_path / "out", baseline="better", figures=False))
    page, text = ((tmp_path / "out" / name).read_text() for name in ("index.html", "report.md"))
    assert "`" not in page and "`" not in text
    cells = [line.split(" | ") for line in text.splitlines() if line.startswith("| frozen")]
    assert any(cell.startswith("−") for row in cells for cell in row)
    assert not [cell for row in cells for cell in row if cell.startswith("-")]


@pytest.mark.parametrize("count, words", [(1, "1 arm, 1 run: BLEU"), (2, "1 arm, 2 runs: BLEU")])
def test_singular_and_plural(tmp_path, count, words):
    write(tmp_path / "runs", {"dense": [30.0] * count})
    report(ReportOptions([tmp_path / "runs"], tmp_path / "out", figures=False))
    assert f"<h1>{words} (validation)</h1>" in (tmp_path / "out" / "index.html").read_text()


def test_an_interrupted_arm_is_best_only_if_all_were_interrupted(tmp_path):
    """The interrupted arm has the better score."""
    write(tmp_path, {"dense": [30.0]})
    log = plain_run(tmp_path / "cut-1", [40, 41], [60, 60], layers=9)
    log.lines = log.lines[:-1]
    log.write()
    found = answered(tmp_path)
    assert found["Which arm is best?"].startswith("dense has")
    assert found["How many seeds?"] == "1 seed for each arm; 1 of 2 runs is unfinished."
    log = plain_run(tmp_path / "dense-1", [30], [60], layers=1)
    log.lines = log.lines[:-1]
    log.write()
    found = answered(tmp_path)
    assert found["Which arm is best?"].startswith("cut has")
    assert found["How many seeds?"] == "1 seed for each arm; 2 of 2 runs are unfinished."

"""Comparisons of --compare: Holm's correction by hand and by his procedure, and the table of a report."""

import csv
import random

import pytest

from fairseq_reservoir.errors import InputError
from fairseq_reservoir.studies.report import ReportOptions, report
from fairseq_reservoir.studies.report.comparisons import corrected
from fairseq_reservoir.studies.report.seed_differences import difference
from tests.support.logs import plain_run


def test_by_hand():
    """The smallest of three becomes 3 x 0.01 = 0.03, the next one 2 x 0.03 = 0.06. 1 x 0.04 is smaller, so it becomes 0.06, too."""
    assert corrected([0.04, 0.01, 0.03]) == pytest.approx([0.06, 0.03, 0.06])
    assert corrected([0.7, 0.6]) == [1.0, 1.0]  # 2 x 0.6 is above 1
    assert corrected([0.02]) == [0.02]


def test_a_comparison_without_p_counts():
    assert corrected([None, 0.02]) == [None, 0.04]
    assert corrected([]) == [] and corrected([None]) == [None]


def rejected(values, level):
    """Return the hypotheses that Holm's procedure rejects: from the smallest p, as long as p <= level / (number left)."""
    found = set()
    for left, (p, i) in zip(range(len(values), 0, -1), sorted((p, i) for i, p in enumerate(values))):
        if p > level / left:
            break
        found.add(i)
    return found


@pytest.mark.parametrize("seed", range(20))
def test_corrected_p_below_a_level_are_rejected_by_the_procedure(seed):
    draw = random.Random(seed)
    values = [draw.random() ** 3 for _ in range(draw.randint(1, 7))]
    for level in (0.01, 0.05, 0.1, 0.5):
        assert {i for i, p in enumerate(corrected(values)) if p <= level} == rejected(values, level)


SCORES = {"dense": [30.0, 31.0, 32.0], "frozen": [27.0, 28.5, 30.0], "masked": [30.0, 31.5, 33.0], "lone": [29.0]}


@pytest.fixture
def runs(tmp_path):
    for layers, (arm, values) in enumerate(SCORES.items(), start=1):
        for seed, score in enumerate(values, start=1):
            plain_run(tmp_path / "runs" / f"{arm}-{seed}", [score - 5, score], [8, 8], seed=seed, layers=layers).write()
    return tmp_path / "runs"


def rows(runs, *comparisons):
    out = runs.parent / "out"
    report(ReportOptions([runs], out, comparisons=comparisons, figures=False))
    with open(out / "tables" / "named.csv", newline="") as file:
        return list(csv.DictReader(file))


def test_in_a_report(runs):
    """An arm of the third pair has a single seed, so the pair has no p. It still counts among the three comparisons."""
    found = rows(runs, ("frozen", "dense"), ("masked", "frozen"), ("lone", "dense"))
    assert [(row["arm"], row["minus"], row["seeds"]) for row in found] == [
        ("frozen", "dense", "3 and 3"), ("masked", "frozen", "3 and 3"), ("lone", "dense", "one has fewer than two"),
    ]  # fmt: skip
    wanted = [difference(SCORES[row["arm"]], SCORES[row["minus"]]) for row in found[:2]]
    for row, one, p in zip(found, wanted, corrected([one.p for one in wanted] + [None])):
        numbers = [row[f"BLEU (validation): {what}"] for what in ("difference", "95 % ±", "p", "corrected p")]
        assert [float(number.removeprefix("'")) for number in numbers] == pytest.approx(
            [one.value, one.interval, one.p, p]
        )
    assert found[2]["BLEU (validation): corrected p"] == ""
    page = (runs.parent / "out" / "report.md").read_text()
    assert "## Chosen comparisons" in page and "Holm's correction for 3 comparisons" in page


def test_a_run_names_its_arm(runs):
    (row,) = rows(runs, ("frozen-2", "dense-1"))
    assert (row["arm"], row["minus"]) == ("frozen", "dense")


def test_a_single_comparison_is_not_corrected(runs):
    (row,) = rows(runs, ("frozen", "dense"))
    assert row["BLEU (validation): p"] and not [column for column in row if "corrected" in column]
    page = (runs.parent / "out" / "report.md").read_text()
    assert (
        "for 1 comparison" not in page and "with p below 0.05 is significant if only this comparison was chosen" in page
    )


def test_a_report_without_comparisons_has_no_such_table(runs):
    report(ReportOptions([runs], runs.parent / "out", figures=False))
    assert not (runs.parent / "out" / "tables" / "named.csv").exists()


@pytest.mark.parametrize(
    "comparisons, message",
    [
        ([("frozen", "dens")], "--compare dens: no arm has this name; choose from dense, frozen, lone, masked"),
        (
            [("frozen", "frozen-1")],
            "--compare frozen frozen-1: both names belong to the arm frozen; name two different arms",
        ),
        (
            [("frozen", "dense"), ("dense", "frozen")],
            "--compare dense frozen: this pair occurs twice, and Holm's correction would count it twice; remove one",
        ),
    ],
)
def test_errors_before_anything_is_written(runs, comparisons, message):
    with pytest.raises(InputError) as error:
        rows(runs, *comparisons)
    assert str(error.value) == message and not (runs.parent / "out").exists()

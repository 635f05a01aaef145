"""Sizes of exports in a report: their source, the Pareto front, and the figure."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from fairseq_reservoir import cli
from fairseq_reservoir.checkpoint.export import Written
from fairseq_reservoir.studies.report import figures
from fairseq_reservoir.studies.report.exports import Exported, Sized, exported, front
from fairseq_reservoir.studies.report.figures import _columns, _marks
from fairseq_reservoir.studies.report.measures import Spread
from fairseq_reservoir.studies.report.runs import find_runs
from tests.support.runs_of_a_study import write_runs


@pytest.fixture
def runs(tmp_path):
    """Three arms. dense has a file of 567 bytes, keep30 and keep70 have an export.log."""
    write_runs(tmp_path / "runs")
    for arm, size, entropy in (("keep30", 200_000, 180_000), ("keep70", 300_000, 290_000)):
        for seed in (1, 2, 3):
            said = Written("model.safetensors", size + seed, size, entropy, 4, 0, text_bytes=99).details
            (tmp_path / "runs" / f"{arm}-{seed}" / "export.log").write_text(f"packing\n{said}\n")
    return tmp_path / "runs"


@pytest.fixture
def quick(monkeypatch):
    """Save only the figure of file sizes. Saving the other figures takes seconds, and test_report.py checks their files."""
    of_sizes, draw, save = [], figures._bytes, figures._saved

    def remember(study):
        of_sizes.append(draw(study))
        return of_sizes[-1]

    def only_sizes(figure):
        return save(figure) if figure in of_sizes else dict.fromkeys(("png", "pdf", "svg"), b"<svg/>")

    monkeypatch.setattr(figures, "_bytes", remember)
    monkeypatch.setattr(figures, "_saved", only_sizes)


def of_name(runs, name):
    return next(run for run in find_runs([runs]) if run.name == name)


def test_sizes_from_the_log(runs):
    log = runs / "keep30-2" / "export.log"
    assert exported(of_name(runs, "keep30-2")) == Exported(200_002, 180_000, str(log))
    log.write_text(
        f"ct2: 5 bytes, CTranslate2's model\n{Written('model.safetensors', 234_567, 1, 1, 1, 0)}\n"
    )  # without --verbose
    assert exported(of_name(runs, "keep30-2")) == Exported(234_567, None, str(log))
    log.write_text(Written("model.safetensors", 200_002, 200_000, 180_000, 4, 0).details)
    log.rename(log.with_name("reservoir.log"))  # the name in earlier versions
    assert exported(of_name(runs, "keep30-2")).entropy == 180_000


def test_the_size_of_the_file_without_a_log(runs):
    assert exported(of_name(runs, "dense-1")).bytes == 567 and exported(of_name(runs, "dense-2")) is None
    (runs / "dense-1" / "export.log").write_text("Traceback\n")
    assert exported(of_name(runs, "dense-1")) == Exported(567, None, str(runs / "dense-1"))


@pytest.mark.parametrize(
    "points, expected",
    [
        ("10:20 20:30 30:25 40:31", "10 20 40"),  # 30 bytes score less than 20 bytes
        ("10:20 20:20", "10"),  # an equal score is not better
        ("10:20 10:21 20:19", "10"),  # the better one of equal size
        ("10:30", "10"),
        ("10:30 10:30", "10"),  # the first of two equal ones
        ("", ""),
    ],
)
def test_front(points, expected):
    arms = [
        Sized(SimpleNamespace(name=text), float(text.split(":")[0]), Spread(float(text.split(":")[1]), None, 1, 1))
        for text in points.split()
    ]
    best = front(arms)
    assert " ".join(f"{one.bytes:g}" for one in best) == expected
    for one in best:  # by definition
        others = [o for o in arms if (o.bytes, o.test.mean) != (one.bytes, one.test.mean)]
        assert not [o for o in others if o.bytes <= one.bytes and o.test.mean >= one.test.mean]


def test_table_and_figure(runs, quick, tmp_path):
    (runs / "dense-1" / "model.safetensors").write_bytes(b"x" * 400_000)
    cli.main(["report", str(runs), "--out", str(tmp_path / "out")])
    table = (tmp_path / "out/tables/sizes.csv").read_text().splitlines()
    assert table[0].endswith("bytes: packed export,bytes: entropy of the export,bits per parameter")
    rows = {line.split(",")[0]: line.split(",") for line in table[1:]}
    assert rows["keep30"][-3:-1] == ["200001", "180000"] and rows["dense"][-3:] == ["400000", "", ""]
    assert float(rows["keep30"][-1]) == pytest.approx(8 * 180_000 / int(rows["keep30"][1]), abs=0.005)
    assert Path(tmp_path / "out/figures/bytes.png").stat().st_size > 10_000
    page = (tmp_path / "out/index.html").read_text()
    assert "no smaller file scores as high" in page and "packed export, MB" in page


@pytest.mark.parametrize(
    "low, high", [(0.577, 0.902), (5e-4, 38), (0.2, 3.1), (1.0, 1.57), (0.19, 0.31), (1e-4, 1e3), (3.7, 6)]
)
def test_marks_of_the_axis(low, high):
    marks = _marks(low, high)
    assert (
        2 <= len(marks) <= 8
        and all(low <= mark <= high for mark in marks)
        and len({f"{m:g}" for m in marks}) == len(marks)
    )


def test_one_size_makes_no_figure(quick, tmp_path):
    write_runs(tmp_path / "runs")
    cli.main(["report", str(tmp_path / "runs"), "--out", str(tmp_path / "out")])
    assert list((tmp_path / "out/figures").glob("convergence_*"))
    assert not (tmp_path / "out/figures/bytes.png").exists()


def test_a_point_of_another_program(runs, quick, tmp_path):
    cli.main(["report", str(runs), "--out", str(tmp_path / "out"), "--point", "int8", "250000", "90"])
    page = (tmp_path / "out/index.html").read_text()
    assert ">int8<" in page and "size of the file, MB" in page
    assert "From --point: int8, 250,000 bytes, sacreBLEU 90." in (tmp_path / "out/report.md").read_text()


@pytest.mark.parametrize(
    "size, bleu", [("0", "30"), ("1.5", "30"), ("10", "-1"), ("10", "nan"), ("10", "100.5"), ("x", "3")]
)
def test_invalid_points(runs, tmp_path, size, bleu):
    with pytest.raises(SystemExit) as refusal:
        cli.main(["report", str(runs), "--out", str(tmp_path / "out"), "--point", "int8", size, bleu])
    message = f"--point int8 {size} {bleu}: BYTES must be a positive whole number, and BLEU a number from 0 to 100"
    assert message in str(refusal.value)
    assert not (tmp_path / "out").exists()


def test_points_of_one_name(runs, tmp_path):
    with pytest.raises(SystemExit, match="error: --point int8: this name occurs twice; give each file its own name$"):
        cli.main(
            ["report", str(runs), "--out", str(tmp_path / "out"), *("--point int8 100 9 --point int8 200 9".split())]
        )
    assert not (tmp_path / "out").exists()


def test_the_legend_shows_long_names_of_points_whole():
    assert _columns(["a", "b", "c", "d"]) == 2
    assert _columns(["a", "b", "c", "d", "of another program, rounded to int8"]) == 1

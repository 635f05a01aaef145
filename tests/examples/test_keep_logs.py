"""Archives of a study's logs give the same report as the runs, and as the page next to them."""

import re
import tarfile
from pathlib import Path

import pytest

from examples.keep_logs import KEPT, main, of_training, write
from fairseq_reservoir import cli
from fairseq_reservoir.studies.report import counts
from tests.support.runs_of_a_study import REFERENCES, translations, write_runs
from tests.support.unpacked import unpack

ROOT = Path(__file__).parents[2]
ARCHIVES = sorted(ROOT.glob("examples/*/results/*.tar.xz"))
PAGES = sorted([*ROOT.glob("examples/*/results/*.md"), *ROOT.glob("benchmarks/results/*.md")])


def _newest_at_once():
    """All archives. The newest archive of each study is tested by default, the others are slow tests."""
    newest = {archive.parent: archive for archive in ARCHIVES}.values()
    for archive in ARCHIVES:
        yield pytest.param(archive, marks=[] if archive in newest else [pytest.mark.slow])


# Sections that depend neither on times, nor on records within an epoch, nor on files that are not archived.
SECTIONS = ("## Scores", "## Test score against", "## Chosen comparisons")


def sections(runs, out, *flags):
    """Rows of the tables in these sections of a report."""
    cli.main(["report", str(runs), "--out", str(out), "--no-figures", *flags])
    parts = re.split(r"^(?=## )", (out / "report.md").read_text(), flags=re.MULTILINE)
    return [line for part in parts if part.startswith(SECTIONS) for line in part.splitlines() if line.startswith("| ")]


def test_a_report_of_the_archive_is_that_of_the_runs(tmp_path):
    write_runs(tmp_path / "runs")
    for folder in (tmp_path / "runs").iterdir():
        (folder / "command").write_text(f"fairseq-train {tmp_path}/bin\n")
        (folder / "state").write_text("done\n" if (folder / "generate.log").exists() else "running train\n")
    out, again = tmp_path / "kept.tar.xz", tmp_path / "again.tar.xz"
    for each in (out, again):
        write(each, tmp_path / "runs", [(str(tmp_path), "runs")])
    assert out.read_bytes() == again.read_bytes() and len(out.read_bytes()) < 6000
    with tarfile.open(out) as archive:
        unpack(archive, tmp_path / "kept")
    kept = {path.name for path in (tmp_path / "kept").iterdir()}
    assert len(kept) == 9 and {name.rstrip("-123") for name in kept} == {"dense", "keep30", "keep70"}
    files = {path.name for path in (tmp_path / "kept" / "dense-1").iterdir()}
    assert files == {"train.log", "generate.log", "counts.jsonl", "state", "command"}
    kept_text = "".join(path.read_text() for path in (tmp_path / "kept").rglob("*") if path.is_file())
    assert "BLEU4" in kept_text and not any(line in kept_text for line in (*REFERENCES, *translations(0)))
    assert not [path for path in (tmp_path / "kept").rglob("*.log") if str(tmp_path) in path.read_text()]
    for folder in (tmp_path / "runs").iterdir():
        if folder.name not in kept:
            (folder / "train.log").unlink()
    flags = ("--baseline", "dense", "--compare", "keep30", "keep70")
    rows = sections(tmp_path / "kept", tmp_path / "of kept", *flags)
    assert rows == sections(tmp_path / "runs", tmp_path / "of runs", *flags) and len(rows) > 10


def test_runs_of_a_recipe(tmp_path):
    """These runs have no state. A validation after the training shows that a run is done."""
    result = '2026-11-22 19:25:58 | INFO | test | {"test_loss": "0.682", "test_accuracy": "79"}'
    record = '2026-11-22 19:25:50 | INFO | valid | {"epoch": 1, "valid_loss": "0.6", "valid_num_updates": "450"}'
    for name in ("done-1", "training-2"):
        (tmp_path / "runs" / name).mkdir(parents=True)
        (tmp_path / "runs" / name / "train.log").write_text(f"anything\n{record}\n")
    (tmp_path / "runs" / "done-1" / "validate.log").write_text(f"loading\n{result}\n")
    write(tmp_path / "kept.tar.xz", tmp_path / "runs", [])
    with tarfile.open(tmp_path / "kept.tar.xz") as archive:
        kept = {member.name: archive.extractfile(member).read().decode() for member in archive}
    assert kept == {"done-1/train.log": f"{record}\n", "done-1/validate.log": f"{result}\n"}


def test_a_log_that_is_not_utf_8(tmp_path):
    record = '2026-11-22 19:25:50 | INFO | valid | {"epoch": 1, "valid_loss": "0.6", "valid_num_updates": "450"}'
    (tmp_path / "runs" / "one-1").mkdir(parents=True)
    (tmp_path / "runs" / "one-1" / "train.log").write_bytes(b"a word \xff\n" + record.encode() + b"\n")
    (tmp_path / "runs" / "one-1" / "state").write_text("done\n")
    write(tmp_path / "kept.tar.xz", tmp_path / "runs", [])
    with tarfile.open(tmp_path / "kept.tar.xz") as archive:
        assert archive.extractfile("one-1/train.log").read().decode() == f"{record}\n"


def test_runs_that_were_ended_are_kept_by_name(tmp_path, monkeypatch):
    write_runs(tmp_path / "runs")
    for folder in (tmp_path / "runs").iterdir():
        (folder / "state").write_text("done\n" if folder.name == "dense-1" else "failed train 143\n")
    out = tmp_path / "kept.tar.xz"
    monkeypatch.setattr("sys.argv", ["keep_logs.py", "--not-done", "keep30-[12]", str(out), str(tmp_path / "runs")])
    main()
    with tarfile.open(out) as archive:
        assert {name.split("/")[0] for name in archive.getnames()} == {"dense-1", "keep30-1", "keep30-2"}


def test_when_layers_froze_is_kept():
    said = "| INFO | fairseq_reservoir.freezing.freeze_auto | update 30: encoder.layers.0 frozen; 9 of 20 tensors are frozen"
    assert list(of_training(f"Start iterating over samples\n2026-01-02 {said}\n")) == [f"2026-01-02 {said}"]


def test_no_run_that_is_done_leaves_the_archive_there_was(tmp_path):
    write_runs(tmp_path / "runs")
    for folder in (tmp_path / "runs").iterdir():
        (folder / "state").write_text("running train\n")
    (tmp_path / "kept.tar.xz").write_text("before")
    with pytest.raises(SystemExit, match=f"no run that is done in {tmp_path}/runs"):
        write(tmp_path / "kept.tar.xz", tmp_path / "runs", [])
    assert (tmp_path / "kept.tar.xz").read_text() == "before"


@pytest.mark.parametrize("words", [["/no/such/folder"], [str(ROOT), "no pair"]])
def test_usage(words, monkeypatch):
    monkeypatch.setattr("sys.argv", ["keep_logs.py", "out.tar.xz", *words])
    with pytest.raises(SystemExit, match="Usage: keep_logs.py"):
        main()


def tables_of_arms(text):
    """Yield the rows of all tables of a text that have ``arm`` as their first column: lists of cells, without heads.

    Reports have a minus sign where pages have a hyphen.
    """
    for table in re.findall(r"(?:^\|.*\n)+", text.replace("−", "-"), flags=re.MULTILINE):
        head, _, *rows = ([cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in table.splitlines())
        if head[0] == "arm":
            yield from rows


def figures_of(report):
    """Arm -> the figures in its rows: each cell, and a cell with its interval in the next one."""
    found = {}
    for arm, *cells in tables_of_arms(report):
        pairs = (f"{figure} ± {interval}" for figure, interval in zip(cells, cells[1:]))
        found.setdefault(arm, set()).update(cells, pairs)
    return found


@pytest.mark.parametrize("archive", _newest_at_once(), ids=lambda path: f"{path.parents[1].name}-{path.name}")
def test_the_tables_of_a_page_are_those_of_its_archive(archive, tmp_path):
    """The page of the same name has the command that makes the report, and every figure in its tables of arms is in that report."""
    assert archive.stat().st_size < 200_000
    page = archive.with_name(archive.name.replace(".tar.xz", ".md")).read_text()
    folder = f"runs/{archive.name.removesuffix('.tar.xz')}"  # in its own folder, because archives share names of runs
    assert f"mkdir -p {folder} && tar xf {archive.relative_to(ROOT)} -C {folder}\n" in page
    flags = re.search(rf"fairseq-reservoir report {folder} --out report(.*)", page)[1].split()
    with tarfile.open(archive) as files:
        assert {name.partition("/")[2] for name in files.getnames()} <= {*KEPT, counts.FILE}
        unpack(files, tmp_path / "runs")
    logs = [line for log in (tmp_path / "runs").glob("*/generate.log") for line in log.read_text().splitlines()]
    assert not [line for line in logs if not line.startswith("Generate ")], "a test set is not ours to give away"
    cli.main(["report", str(tmp_path / "runs"), "--out", str(tmp_path / "report"), "--no-figures", *flags])
    if (
        "--compare" in flags
    ):  # the report answers this comparison first, so it must be the comparison of the page's first claim
        first = flags[flags.index("--compare") + 1].partition("-lr")[0]
        assert re.search(rf"\b{first}\b", re.search(r"^\*\*(.*?)\*\*", page, flags=re.MULTILINE)[1])
    report = figures_of((tmp_path / "report" / "report.md").read_text())
    rows = list(tables_of_arms(page))
    assert rows
    for arm, *cells in rows:
        assert set(filter(None, cells)) <= report[arm], arm


@pytest.mark.parametrize("page", PAGES, ids=lambda path: f"{path.parents[1].name}-{path.name}")
def test_a_page_of_results_is_short(page):
    assert len([word for word in page.read_text().split() if re.search(r"\w", word)]) <= 400


def test_results_hold_pages_archives_and_their_figures():
    for folder in {page.parent for page in PAGES}:
        texts = "".join(page.read_text() for page in [*folder.glob("*.md"), folder.parent / "README.md"])
        for path in folder.iterdir():
            assert path.suffix == ".md" or f"{path.name})" in texts, path

"""Damaged or malicious folders of runs: each gives one line, other runs are reported, and nothing is written outside."""

import os
import random
import shutil

import pytest

from fairseq_reservoir import cli
from fairseq_reservoir.errors import InputError
from fairseq_reservoir.studies.report import ReportOptions, bootstrap, report
from tests.support.logs import generated, plain_run
from tests.support.odd_files import damage, deadline, make_victim, snapshot

REFERENCES = ["the small cat sat on the mat .", "a red dog ran over the old road .", "he sees two black birds there ."]


def write_runs(folder):
    for seed in (1, 2):
        for arm, score in (("a", 20), ("b", 22)):
            run = plain_run(folder / f"{arm}-{seed}", [10, score], [4, 4], seed=seed, layers=ord(arm)).write()
            generated(run, REFERENCES, [line.replace("cat", "dog") for line in REFERENCES])


@pytest.fixture
def runs(tmp_path):
    write_runs(tmp_path / "runs")
    return tmp_path / "runs"


def change(old, new):
    """Damage the training log."""

    def spoil(run):
        text = (run / "train.log").read_text()
        assert old in text
        (run / "train.log").write_text(text.replace(old, new))

    return spoil


def write(name, text):
    return lambda run: (run / name).write_text(text)


def fifo(name):
    def spoil(run):
        (run / name).unlink(missing_ok=True)
        os.mkfifo(run / name)

    return spoil


ODD = {
    "b\udce9-1": (lambda run: run.rename(run.with_name("b\udce9-1")), ""),
    "a folder in place of a log": (lambda run: (run / "generate-old.log").mkdir(), "a-1: generate-old.log is a folder"),
    "dangling log": (
        lambda run: (run / "generate-x.txt").symlink_to("/nowhere"),
        "a-1: generate-x.txt is a broken link",
    ),
    "dangling export": (
        lambda run: (run / "x.safetensors").symlink_to("/nowhere"),
        "a-1: x.safetensors is a broken link",
    ),
    "sizes": (write("export.log", ": , bytes (, of data, whose entropy is ,)\n"), ""),
    "size of 5,000 digits": (write("export.log", f": {'9' * 5000} bytes (1 of data, whose entropy is 1)\n"), ""),
    "loss": (write("test.log", "Loss (base 2): ...\n"), ""),
    "loss of two points": (write("test.log", "Loss (base 2): 1.2.3\n"), ""),
    "deep": (write("bleu.json", "[" * 100_000), ""),
    "score of 400 digits": (write("bleu.json", f'{{"score": {"9" * 400}}}'), ""),
    "stars": (
        change("{'_name': None,", "{'_name': None, **{'a': 1},"),
        "a-1: the configuration at the beginning of its log",
    ),
    "seed": (change("'seed': 1", f"'seed': 0x{'f' * 5000}"), ""),
    "a value that is deep JSON": (change("'choice': ", f"'flag': '{'[' * 100_000}', 'choice': "), ""),
    "decimal seed": (
        change("'seed': 1", f"'seed': {'9' * 5000}"),
        "a-1: the configuration at the beginning of its log",
    ),
    "quotes": (
        change("'seed': 1", "'seed': '" + "\\'" * 400_000),
        "a-1: the configuration at the beginning of its log",
    ),
    "translations in a FIFO": (fifo("generate.log"), "a-1: generate.log is a FIFO"),
    "state in a FIFO": (fifo("state"), "a-1: state is a FIFO"),
    "log in a FIFO": (fifo("train.log"), "Runs left out:** a-1: train.log is a FIFO"),
    "counts": (write("counts.jsonl", "[1"), ""),
}


@pytest.mark.parametrize("spoil, caution", ODD.values(), ids=[name.encode(errors="replace").decode() for name in ODD])
def test_one_damaged_run_is_named_and_the_others_are_reported(runs, tmp_path, spoil, caution):
    spoil(runs / "a-1")
    with deadline(60, "report"):
        study = report(ReportOptions([runs], tmp_path / "out", figures=False))
    assert {run.name for arm in study.arms for run in arm.runs} >= {"a-2", "b-1", "b-2"}
    page = (tmp_path / "out" / "report.md").read_text()
    assert caution.replace("_", "\\_") in page


def test_a_run_that_needs_its_damaged_counts(runs, tmp_path):
    (runs / "a-1" / "generate.log").unlink()
    (runs / "a-1" / "counts.jsonl").write_text("[1\n")
    study = report(ReportOptions([runs], tmp_path / "out", figures=False))
    assert study.tests["a-1"].bleu is None and study.tests["a-2"].bleu is not None
    assert (
        "Files that cannot be read:** a-1: counts.jsonl: is not a file of translation counts"
        in (tmp_path / "out" / "report.md").read_text()
    )


def test_names_that_are_not_utf8_are_escaped(tmp_path):
    plain_run(tmp_path / "r\udce9" / "b\udce9-1", [10, 20], [4, 4]).write()
    report(ReportOptions([tmp_path / "r\udce9"], tmp_path / "out\udce9", figures=False))
    page = (tmp_path / "out\udce9" / "index.html").read_text(encoding="utf-8")
    assert "b\\udce9" in page and f"{tmp_path}/r\\udce9/b\\udce9-1/train.log" in page


def test_an_unreadable_log_is_named_if_no_other_has_a_validation(runs, tmp_path):
    fifo("train.log")(runs / "a-1")
    with pytest.raises(
        InputError, match="^RUNS .*/a-1/train.log: is a FIFO, and no other log has a finished validation$"
    ):
        report(ReportOptions([runs / "a-1"], tmp_path / "out", figures=False))


@pytest.mark.parametrize(
    "words, message",
    [
        (["--point", "x", "9" * 400, "30"], r"error: --point x 9+\.\.\.9+ 30: BYTES must be a positive whole number"),
        (["--out", "x" * 5000], r"error: --out x+\.\.\.x+: cannot be written \(File name too long\)"),
    ],
)
def test_flags_of_excessive_length(runs, tmp_path, words, message):
    with pytest.raises(SystemExit, match=message):
        cli.main(["report", str(runs), "--out", str(tmp_path / "out"), "--no-figures", *words])
    assert not (tmp_path / "out").exists()


def test_no_file_is_deleted_or_written_through_a_link(runs, tmp_path):
    """A malicious report folder: ``tables`` links to a home folder, and the list names files in it to delete."""
    home, out = make_victim(tmp_path / "home"), tmp_path / "out"
    before = snapshot(home)
    out.mkdir()
    (out / "files.txt").write_text(
        "made by fairseq-reservoir report\ntables/own.txt\ntables/.ssh/id\ntables/aucc.csv\n"
    )
    (out / "tables").symlink_to(home)
    with pytest.raises(
        InputError, match=r"--out .*/out: tables is a symbolic link; reports are not written through links"
    ):
        report(ReportOptions([runs], out, figures=False))
    assert snapshot(home) == before and sorted(os.listdir(out)) == ["files.txt", "tables"]


def test_listed_files_that_no_report_writes_stay(runs, tmp_path):
    out = tmp_path / "out"
    (out / "tables").mkdir(parents=True)
    for name in ("tables/aucc.csv", "tables/notes.csv", "thesis.tex", "tables/named.csv"):
        (out / name).write_text("mine")
    names = "\n".join(("tables/aucc.csv", "tables/notes.csv", "thesis.tex", "tables/named.csv", "../victim"))
    (out / "files.txt").write_text(f"made by fairseq-reservoir report\n{names}\n")
    (tmp_path / "victim").write_text("mine")
    report(ReportOptions([runs], out, figures=False))
    for kept in (out / "tables/notes.csv", out / "thesis.tex", tmp_path / "victim"):
        assert kept.read_text() == "mine"
    assert not (out / "tables/named.csv").exists()  # of a report with --compare
    assert (out / "tables/aucc.csv").read_text().startswith("arm,")


def test_links_in_place_of_files_are_replaced(runs, tmp_path):
    home, out = make_victim(tmp_path / "home"), tmp_path / "out"
    before = snapshot(home)
    report(ReportOptions([runs], out, figures=False))
    for name in ("files.txt", "report.md", "tables/aucc.csv"):
        (out / name).unlink()
        (out / name).symlink_to(home / "own.txt")
    (out / "files.txt").unlink()
    (home / "files.txt").write_text("made by fairseq-reservoir report\n")
    (out / "files.txt").symlink_to(home / "files.txt")
    report(ReportOptions([runs], out, figures=False))
    assert not any(path.is_symlink() for path in out.rglob("*"))
    assert snapshot(home) == before | {"files.txt": b"made by fairseq-reservoir report\n"}


@pytest.mark.parametrize("name", ["tables", "report.md", "files.txt"])
def test_a_folder_with_another_kind_of_file_is_refused_before_work(runs, tmp_path, name):
    out = tmp_path / "out"
    report(ReportOptions([runs], out, figures=False))
    before = snapshot(out)
    shutil.rmtree(out / name) if (out / name).is_dir() else (out / name).unlink()
    os.mkfifo(out / name) if name == "tables" else (out / name).mkdir()
    with pytest.raises(InputError, match=r"^--out .*/out: "), deadline(60, name):
        report(ReportOptions([runs], out, figures=False))
    assert set(snapshot(out)) <= set(before)


def try_one(seed, folder, template):
    """Write a report of damaged runs into a damaged folder. An error must be one line, and the folder beside it must not change."""
    dice = random.Random(seed)
    shutil.copytree(template, folder, symlinks=True)
    victim = make_victim(folder / "victim")
    before, runs, out = snapshot(victim), folder / "runs", folder / "out"
    one_run = dice.random() < 0.5
    names = ["train.log", "generate.log", "state", "command", "export.log", "test.log", "bleu.json", "counts.jsonl"]
    names += ["hypotheses", "references", "x.safetensors", "checkpoint_best.pt", "generate-valid.txt", "other.json"]
    done = []
    if one_run:
        done.append(damage(dice, runs / "a-1" / dice.choice(names), victim))
    for _ in range(0 if one_run else dice.randint(1, 6)):
        places = [runs / dice.choice(["a-1", "a-2", "b-1"]) / dice.choice(names), runs / dice.choice(["a-1", "b-2"])]
        places += [out / dice.choice(["files.txt", "tables", "figures", "report.md", "tables/aucc.csv"])]
        place = dice.choices(places, [6, 1, 3])[0]
        if place.parent.is_dir() and not place.parent.is_symlink():
            done.append(damage(dice, place, victim))
    said = f"seed {seed}: {'; '.join(done)}"
    try:
        with deadline(120, said):
            study = report(ReportOptions([runs], out, figures=False))
    except InputError as error:
        assert "\n" not in str(error) and not one_run, f"{said}: {error}"
    except Exception as error:
        raise AssertionError(said) from error
    else:
        assert not one_run or {"a-2", "b-1", "b-2"} <= {run.name for arm in study.arms for run in arm.runs}, said
    assert snapshot(victim) == before, said


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    folder = tmp_path_factory.mktemp("template")
    write_runs(folder / "runs")
    for name, text in (("state", "done\n"), ("command", "fairseq-train\n"), ("bleu.json", '{"score": 12.5}\n')):
        (folder / "runs" / "a-1" / name).write_text(text)
    (folder / "runs" / "a-1" / "export.log").write_text(": 1,234 bytes (1,200 of data, whose entropy is 1,100)\n")
    (folder / "runs" / "a-1" / "test.log").write_text("Loss (base 2): 3.4567, Perplexity: 1\n")
    report(ReportOptions([folder / "runs"], folder / "out", figures=False))
    return folder


@pytest.mark.parametrize(
    "seeds", [range(12), pytest.param(range(12, 1012), marks=pytest.mark.slow)], ids=["few", "many"]
)
def test_odd_folders(tmp_path, template, seeds, monkeypatch):
    monkeypatch.setattr(bootstrap, "SAMPLES", 20)
    for seed in seeds:
        try_one(seed, tmp_path / str(seed), template)
        shutil.rmtree(tmp_path / str(seed))

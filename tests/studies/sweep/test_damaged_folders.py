"""Damaged or malicious folders of sweeps: each gives one line, other runs continue, and nothing is written outside."""

import errno
import fcntl
import os
import random
import shutil
import sys

import pytest

from fairseq_reservoir import cli
from fairseq_reservoir.studies.sweep import local, run as run_module
from fairseq_reservoir.studies.sweep.grid import read_grid
from tests.support.logs import plain_run
from tests.support.odd_files import damage, deadline, make_victim, snapshot

TWO = "command: sh -c 'echo hi' x\naxes: {a: [1, 2]}\n"


def lock(make):
    """Replace the lock of a due run."""

    def spoil(run, home):
        (run / "state").write_text("waiting\n")
        (run / "lock").unlink()
        make(run / "lock", home)

    return spoil


def log(make):
    def spoil(run, home):
        (run / "state").write_text("waiting\n")
        (run / "sh.out").unlink()
        make(run / "sh.out", home)

    return spoil


def link_of_the_folder(run, home):
    (run / "state").write_text("waiting\n")
    shutil.move(run, home / "moved")
    run.symlink_to(home / "moved")


def damaged_command(run, home):
    (run / "state").write_text("waiting\n")
    (run / "command").write_bytes((run / "command").read_bytes() + b"\xff")


def in_place(path, make):
    path.unlink()
    make(path)


ODD = {
    "state begins with 'd\ufffdne'; must be one of waiting, running, done, failed": lambda run, home: (
        run / "state"
    ).write_bytes(b"d\xffne\n"),
    "state is a FIFO": lambda run, home: in_place(run / "state", os.mkfifo),
    "state is a folder": lambda run, home: in_place(run / "state", os.mkdir),
    "state is a link": lambda run, home: in_place(run / "state", lambda path: path.symlink_to("nowhere")),
    "command is not UTF-8": damaged_command,
    "lock is a link": lock(lambda path, home: path.symlink_to(home / "lock")),
    "lock has a second name (a hard link)": lock(lambda path, home: path.hardlink_to(home / "lock")),
    "lock is a FIFO": lock(lambda path, home: os.mkfifo(path)),
    "lock is a folder": lock(lambda path, home: path.mkdir()),
    "sh.out has a second name (a hard link)": log(lambda path, home: path.hardlink_to(home / "own.txt")),
    "sh.out is a link": log(lambda path, home: path.symlink_to(home / "own.txt")),
    "sh.out is a FIFO": log(lambda path, home: os.mkfifo(path)),
    "the folder is a link": link_of_the_folder,
}


@pytest.mark.parametrize("fault, spoil", [pytest.param(fault, spoil, id=fault[:20]) for fault, spoil in ODD.items()])
def test_a_damaged_run_is_named_and_the_others_continue(sweep, tmp_path, capsys, fault, spoil):
    assert sweep.write(TWO)() == 0
    home = make_victim(tmp_path / "home")
    spoil(sweep.out / "a1", home)
    (sweep.out / "a2" / "state").write_text("waiting\n")
    before = snapshot(home)
    capsys.readouterr()
    with deadline(60, fault):
        assert sweep() == 1
    said = capsys.readouterr().out
    assert f"a1: damaged: {fault}, left out\n" in said and f"a1            damaged: {fault}\n" in said
    assert sweep.output("a2") == ["hi", "hi"]
    assert snapshot(home) == before


def test_replaced_files_may_have_hard_links(sweep, tmp_path):
    """`cp -al` and `rsync --link-dest` make hard links. The run continues, and the backup keeps its text."""
    assert sweep.write(TWO)() == 0
    run, backup = sweep.out / "a1", tmp_path / "backup"
    (run / "state").write_text("waiting\n")
    backup.mkdir()
    for name in ("command", "state"):
        (backup / name).hardlink_to(run / name)
    before = snapshot(backup)
    assert sweep() == 0
    assert (run / "state").read_text() == "done\n"
    assert snapshot(backup) == before


def test_a_finished_run_behind_a_link_is_only_read(sweep, tmp_path):
    assert sweep.write(TWO)() == 0
    shutil.move(sweep.out / "a1", tmp_path / "home")
    (sweep.out / "a1").symlink_to(tmp_path / "home")
    before = {path.name: path.stat() for path in (tmp_path / "home").iterdir()}
    assert sweep("--retry-failed") == 0
    assert {path.name: path.stat() for path in (tmp_path / "home").iterdir()} == before


def test_a_log_that_becomes_a_link_is_not_followed(sweep, tmp_path):
    """The first command replaces the log of the second by a link."""
    victim = tmp_path / "victim"
    victim.write_text("precious\n")
    sweep.write(f"command: sh -c 'ln -s {victim} {{out}}/sh-2.out'\nthen: [sh -c 'echo then']\naxes: {{a: [1]}}\n")
    assert sweep() == 1 and sweep.states() == {"a1": "failed sh-2 127"} and victim.read_text() == "precious\n"


@pytest.mark.parametrize("number", [errno.ENOSYS, errno.ENOLCK])
def test_a_file_system_without_locks_is_one_line(sweep, monkeypatch, number):
    def refuse(*words):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", refuse)
    refusal = f"--out: {sweep.out}/a1/lock cannot be locked ({os.strerror(number)}); name a folder on a file system with locks"
    assert sweep.write(TWO)() == f"fairseq-reservoir: error: {refusal}, so that no run is started twice"
    assert sweep.states() == {"a1": "waiting", "a2": "waiting"}


def test_a_lock_of_nonsense_has_no_holder(sweep):
    assert sweep.write(TWO)() == 0
    (run, _), _ = read_grid(str(sweep.grid), str(sweep.out))
    for text in (
        "host 99999999999999999999 0",
        f"host {'9' * 5000} 0",
        "host 0 0",
        "host -1 0",
        "host 1",
        "[",
        "\xb3 \xb3 \xb3",
    ):
        (sweep.out / "a1" / "lock").write_text(text)
        assert run.holder is None and not run.is_orphaned, text
    (sweep.out / "a1" / "lock").write_text("host 12 0")
    assert run.holder == ("host", 12, 0)


def test_paths_that_are_not_utf8(sweep, capsys):
    sweep.out = sweep.out.with_name("out\udce9")
    assert sweep.write("command: sh -c 'echo hi' {out}\naxes: {a: [1, 2]}\n")() == 0
    assert b"out\xe9/a1" in (sweep.out / "a1" / "command").read_bytes()
    assert sweep() == 0 and sweep.output("a1") == ["hi"]  # it recognises its own folder
    assert "out\\udce9" in capsys.readouterr().out


def test_a_name_of_excessive_length_is_one_line(sweep):
    sweep.out = sweep.out.with_name("x" * 5000)
    assert sweep.write(TWO)().endswith("cannot be used (File name too long)")


def test_a_reader_that_leaves_ends_the_sweep_without_a_traceback(sweep, monkeypatch):
    """As in ``sweep ... | head -1``. Finished runs stay, and the sweep can be resumed."""
    sweep.write(TWO)
    reading, writing = os.pipe()
    monkeypatch.setattr(sys, "stdout", open(writing, "w"))
    os.close(reading)
    assert sweep() == 0
    monkeypatch.undo()
    assert sweep() == 0 and sweep.states() == {"a1": "done", "a2": "done"}


GRID = """\
command: fairseq-train data
axes: {lr: [1e-3, 2e-3], seed: [1, 2]}
choose: lr
beyond: 1
then: [sh -c 'echo then']
"""


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    """A folder with a fairseq-train that is a script and prints a log."""
    folder = tmp_path_factory.mktemp("template")
    plain_run(folder, [10, 20], [4, 4]).write()
    script = folder / "bin" / "fairseq-train"
    script.parent.mkdir()
    script.write_text(f"#!/bin/sh\ncat {folder}/train.log\n")
    script.chmod(0o755)
    return folder


@pytest.fixture
def quick(template, monkeypatch):
    monkeypatch.setattr(run_module, "_path", lambda environment: f"{template}/bin{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(local, "_POLL_SECONDS", 0.002)


def sweep_once(folder, *flags):
    try:
        cli.main(["sweep", str(folder / "grid.yaml"), "--out", str(folder / "out"), *flags])
    except SystemExit as leaving:
        return leaving.code
    return 0


def try_one(seed, folder):
    """Run a sweep in randomly damaged folders. An error must be one line, and the folder beside them must not change."""
    dice, out = random.Random(seed), folder / "out"
    folder.mkdir()
    (folder / "grid.yaml").write_text(GRID)
    assert sweep_once(folder) == 0
    victim = make_victim(folder / "victim")
    before, runs = snapshot(victim), sorted(path.name for path in out.iterdir() if path.is_dir())
    for name in runs:
        if dice.random() < 0.5:
            (out / name / "state").write_text(
                dice.choice(["waiting\n", "running train\n", "running sh\n", "failed train 1\n"])
            )
    done = []
    for _ in range(dice.randint(1, 4)):
        place = out / dice.choice(runs)
        if dice.random() < 0.9:
            place /= dice.choice(
                ["state", "state", "command", "lock", "train.log", "sh.out", "other", f"state.{os.getpid()}.tmp"]
            )
        elif dice.random() < 0.5:
            place = out / "choices.txt"
        if place.parent.is_dir() and not place.parent.is_symlink():
            done.append(damage(dice, place, victim))
    said = f"seed {seed}: {'; '.join(done)}"
    flags = dice.choice([[], [], ["--retry-failed"], ["--dry-run"], ["--jobs", "2"]])
    try:
        with deadline(120, said):
            code = sweep_once(folder, *flags)
    except Exception as error:
        raise AssertionError(said) from error
    assert code in (0, 1) or code.startswith("fairseq-reservoir: error: ") and "\n" not in code, said
    assert snapshot(victim) == before, said


@pytest.mark.parametrize("seeds", [range(4), pytest.param(range(4, 1010), marks=pytest.mark.slow)], ids=["few", "many"])
def test_odd_folders(tmp_path, quick, seeds):
    for seed in seeds:
        try_one(seed, tmp_path / str(seed))
        shutil.rmtree(tmp_path / str(seed))

"""Watch a sweep: lines of events, the live table on a terminal, ``--status`` from another shell, and a mended grid file."""

import os
import pty
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

import fairseq_reservoir
from fairseq_reservoir.studies.sweep import run as run_module
from fairseq_reservoir.studies.sweep.failures import last_lines
from fairseq_reservoir.studies.sweep.progress import Progress
from fairseq_reservoir.studies.sweep.table import Row, duration, shortened, status, total_left
from tests.commands.test_light import run_blocked
from tests.support.logs import Writer

COMMAND = [sys.executable, "-c", "import fairseq_reservoir_cli as command; command.main()", "sweep"]
ENVIRONMENT = os.environ | {"PYTHONPATH": str(Path(fairseq_reservoir.__file__).parents[1]), "TERM": "xterm"}


@pytest.fixture
def slow(sweep, tmp_path):
    """A sweep of two runs. The first one logs 20 of 100 updates, and goes on when the file `go` exists. The second one fails."""
    begin = Writer(tmp_path / "log").start()
    begin.inner(10, 10, 100, 10).inner(20, 10, 100, 20).valid(20, loss=5.25, bleu=12.5).write("begin")
    end = Writer(tmp_path / "log").inner(100, 80, 100, 100).valid(100, loss=4.5, bleu=20.25).done()
    end.write("end")
    script = tmp_path / "own data" / "train.sh"
    script.parent.mkdir()
    script.write_text(
        f"cat {tmp_path}/log/begin; until [ -e {tmp_path}/go ]; do sleep 0.05; done; cat {tmp_path}/log/end\n"
        'test "$1" = good || exec python3 -c "def f(): raise ValueError(1234)\nf()"\n'
    )
    # The script has a relative path, as own folders of data may have.
    return sweep.write("command: sh 'own data/train.sh'\narms: {a: good, b: bad}\n")


def start(sweep, **options):
    arguments = [*COMMAND, str(sweep.grid), "--out", "out", "--jobs", "2"]
    return subprocess.Popen(arguments, cwd=sweep.grid.parent, env=ENVIRONMENT, **options)


def snapshot(folder):
    return {str(path): (path.stat().st_mtime_ns, path.read_bytes()) for path in folder.rglob("*") if path.is_file()}


def test_status_of_a_sweep_that_is_running(slow, tmp_path):
    process = start(slow, stdout=subprocess.PIPE, text=True)
    slow.wait_for(lambda: len([log for log in slow.out.glob("*/sh.out") if b"valid_bleu" in log.read_bytes()]) == 2)
    before = snapshot(slow.out)
    shown = run_blocked("sweep", "--status", str(slow.out))
    assert shown.stderr == "" and snapshot(slow.out) == before
    heading, a, b, last = shown.stdout.splitlines()
    assert re.split(r" {2,}", heading) == [
        "run", "minutes", "update", "train loss", "valid loss", "valid BLEU", "left", "state",
    ]  # fmt: skip
    assert re.split(r" {2,}", a) == ["a", "0.3", "20/100", "9.5", "5.25", "12.5", "80 s", "running: sh"]
    assert last == "2 runs: 2 running; about 80 s left"
    (tmp_path / "go").touch()
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 1 and "\x1b" not in out
    assert (
        "a: started, log " in out and "a: update 20 of 100, valid loss 5.25, valid BLEU 12.5, about 80 s left\n" in out
    )
    assert "a: update 100 of 100, valid loss 4.5, valid BLEU 20.25" in out
    # The failure comes with the error, and without the frames of the traceback.
    assert re.search(
        r"b: failed: sh, exit status 1, see \S+/b/sh.out \(0\.\d min\)\n( {4}.*\n)+ {4}ValueError: 1234\n", out
    )
    assert "Traceback" not in out and "line 1" not in out
    shown = run_blocked("sweep", "--status", str(slow.out)).stdout
    assert "    ValueError: 1234\n" in shown and shown.endswith("2 runs: 1 done, 1 failed\n")


def test_status_before_the_first_logged_update(tmp_path, monkeypatch):
    """The run shows the time since it started."""
    folder = tmp_path / "a"
    folder.mkdir()
    for name, text in (("command", "sh train.sh\n"), ("state", "running sh"), ("lock", ""), ("sh.out", "loading\n")):
        (folder / name).write_text(text)
    os.utime(folder / "state", times=2 * (time.time() - 90,))
    monkeypatch.setattr(run_module.Run, "seems_running", lambda run: True)
    heading, row, _ = status(str(tmp_path)).splitlines()
    assert re.split(r" {2,}", heading) == ["run", "minutes", "state"]
    assert re.split(r" {2,}", row) == ["a", "1.5", "running: sh (starting)"]


def test_a_live_table_on_a_terminal(slow, tmp_path):
    terminal, end = pty.openpty()
    process = start(slow, stdout=end)
    os.close(end)
    shown = b""
    try:
        while chunk := os.read(terminal, 1 << 16):
            shown += chunk
            if b"2 runs: 2 running" in shown and b"80 s" in shown:
                (tmp_path / "go").touch()
    except OSError:  # the other end is closed
        pass
    assert process.wait(60) == 1
    text = shown.decode()
    assert re.search(r"a +0\.\d +20/100 +9\.5 +5\.25 +12\.5 +80 s +running: sh", text)
    drawn, last = text.rsplit("\x1b[J", 1)
    # Three lines and the heading are erased before the next line is printed.
    assert "\x1b[4A\r\x1b[J" in text and "2 runs: 2 running" in drawn and "running" not in last


def test_a_reader_that_stops(slow, tmp_path):
    (tmp_path / "go").touch()
    line = f"{' '.join(map(repr, COMMAND))} {slow.grid} --out out | head -1"
    ended = subprocess.run(line, shell=True, cwd=tmp_path, env=ENVIRONMENT, capture_output=True, text=True)
    assert ended.stderr == "" and ended.stdout.endswith("2 of them to do\n")


@pytest.mark.parametrize(
    "arguments, message",
    [
        ([], "GRID: is missing"),
        (["grid.yaml"], "--out: is missing"),
        (["--status", "nowhere"], "--status nowhere: No such file or directory"),
        (["--status", "empty"], "--status empty: contains no run of a sweep; give the folder of a sweep (--out DIR)"),
        (["grid.yaml", "--status", "empty"], "--status DIR: takes no other argument"),
    ],
)
def test_wrong_arguments(arguments, message, tmp_path, monkeypatch, capsys):
    from fairseq_reservoir import cli

    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit, match=f"^fairseq-reservoir: error: {re.escape(message)}"):
        cli.main(["sweep", *arguments])


def test_damaged_files_in_the_folder(sweep, capsys):
    from fairseq_reservoir import cli

    for name, files in {
        "a": {"state": b"d\xffne", "command": b"'\xff"},
        "b": {
            "state": b"running",
            "command": b"sh x\n",
            "lock": b"[",
            "sh.out": b'{"epoch": 1, "update": 1e-320}\xff\n',
        },
        "c": {"command": b""},
        "d": {"state": b"failed train 1", "command": b"\n\n ''\n"},
    }.items():
        (sweep.out / name).mkdir(parents=True)
        for file, content in files.items():
            (sweep.out / name / file).write_bytes(content)
    os.mkfifo(sweep.out / "c" / "state")
    os.mkfifo(sweep.out / "d" / "train.log")
    cli.main(["sweep", "--status", str(sweep.out)])
    assert [line.split()[1] for line in capsys.readouterr().out.splitlines()] == [
        "state", "damaged:", "interrupted:", "damaged:", "failed:", "runs:",
    ]  # fmt: skip


def test_progress_of_a_resumed_and_of_a_long_log(tmp_path):
    writer = Writer(tmp_path).start().inner(10, 1, 100, 30).start(restored=10).inner(20, 1, 100, 20)
    writer.write()
    progress = Progress(tmp_path / "train.log")
    progress.read()
    # 10 updates in 20 seconds, and 80 to go
    assert (progress.updates, progress.total, progress.seconds_left) == (20, 100, 160.0)
    for _ in range(9000):
        writer.inner(20, 1, 100, 20)
    writer.valid(20, loss=3.0).inner(40, 1, 100, 60).write()
    assert [record.values["loss"] for record in progress.read()] == [3.0] and progress.seconds_left == 120.0
    fresh = Progress(tmp_path / "train.log")
    fresh.read()
    assert (fresh.updates, fresh.value("loss"), fresh.seconds_left) == (40, 3.0, 120.0)


def test_time_left_for_all(tmp_path):
    """One run took 100 s, the other is halfway. Two are waiting, and a choice adds one: 50 + 3 * 100 s, two at a time."""
    half = Progress(tmp_path / "none")
    half._limits, half._first, half.updates, half.wall = {"max_update": 10}, (0.0, 0), 5, 50.0
    none = Progress(tmp_path / "none")
    rows = [Row("a", "done", 100 / 60, none, None), Row("b", "running: train", None, half, 50.0)]
    rows += [Row(name, "waiting", None, none, None) for name in "cd"]
    assert total_left(rows, 2, 1) == 175.0 and total_left(rows[:2], 2) == 50.0 and total_left(rows[:1], 2) == 0.0
    assert total_left(rows[2:], 2) is None
    assert [row.name for row in shortened(rows, 2)] == ["b", "c"]
    assert [duration(seconds) for seconds in (45, 720, 11100, 187200)] == ["45 s", "12 min", "3 h 05 min", "2 d 4 h"]


def test_last_lines_without_frames_and_flags(tmp_path):
    log = tmp_path / "train.log"
    log.write_text(
        "one\n\nTraceback (most recent call last):\n  File x\n    f()\nValueError: a\x1bb\nusage: x [-h]\n   [y]\nx: error: z\n"
    )
    assert last_lines(log, 3) == ["one", "ValueError: a\\x1bb", "x: error: z"] and last_lines(tmp_path) == []


@pytest.fixture
def programs(tmp_path, monkeypatch):
    """fairseq-train that trains unless its data is `bad`, and fairseq-generate that fails for beam 0."""
    folder = tmp_path / "bin"
    log = Writer(tmp_path / "log").start().inner(20, 1, 100, 20).valid(20, loss=5.0).done().write("log") / "log"
    folder.mkdir()
    for name, text in {
        "fairseq-train": f'test "$1" != bad && cat {log}',
        "fairseq-generate": 'echo "$@"; test "$2" != 0',
    }.items():
        (folder / name).write_text(f"#!/bin/sh\n{text}\n")
        (folder / name).chmod(0o755)
    monkeypatch.setattr(run_module, "_path", lambda environment: f"{folder}{os.pathsep}{os.environ['PATH']}")


def grid(data, beam, more=""):
    return f"command: fairseq-train {data}\nthen: [fairseq-generate --beam {beam}{more}]\naxes: {{seed: [1]}}\n"


def test_a_mended_grid_continues(sweep, programs, capsys):
    assert sweep.write(grid("bad", 0))() == 1 and sweep.states() == {"run-1": "failed train 1"}
    # It has trained nothing: it starts again, without --retry-failed.
    assert sweep.write(grid("good", 0))() == 1 and sweep.states() == {"run-1": "failed generate 1"}
    trained = (sweep.out / "run-1" / "train.log").read_text()
    assert (
        sweep.write(grid("good", 5))() == 0 and "run-1: continues with its changed commands" in capsys.readouterr().out
    )
    assert sweep.output("run-1", "generate.log") == ["--beam", "5"]
    # A further command of a run that is done.
    assert sweep.write(grid("good", 5, ", sh -c 'echo more'"))() == 0 and sweep.output("run-1") == ["more"]
    assert (sweep.out / "run-1" / "train.log").read_text() == trained
    command = (sweep.out / "run-1" / "command").read_text()
    # Another training would replace the one that has ended. A script that has ended may have trained, too.
    for text in (grid("other", 5), grid("good", 5, ", sh -c 'echo less'")):
        assert "belongs to a run with different commands" in sweep.write(text)()
        assert (sweep.out / "run-1" / "command").read_text() == command and sweep.states() == {"run-1": "done"}


def test_a_stopped_training_is_not_mended(sweep, programs):
    sweep.write(grid("good", 5))()
    (sweep.out / "run-1" / "state").write_text("running train\n")
    assert "belongs to a run with different commands" in sweep.write(grid("other", 5))()
    (sweep.out / "run-1" / "train.log").write_text("no update\n")
    (sweep.out / "run-1" / "checkpoint_last.pt").touch()
    assert "belongs to a run with different commands" in sweep()
    (sweep.out / "run-1" / "checkpoint_last.pt").unlink()
    assert sweep() == 0

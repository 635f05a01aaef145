"""Two trainings in one --save-dir: the second is refused; what a killed one leaves is taken over."""

import errno
import json
import multiprocessing
import os
import signal
import socket
import subprocess
import sys
from contextlib import contextmanager

import pytest

from fairseq_reservoir.checkpoint import save_dir_lock
from fairseq_reservoir.checkpoint.save_dir_lock import NAME, held
from fairseq_reservoir.errors import InputError
from tests.support.commands import error_of, train

HERE = socket.gethostname()
ONE_UPDATE = "--reservoir-encoder LF --max-update 1 --disable-validation --no-epoch-checkpoints".split()


def hold(folder, ready):
    with held(folder):
        ready.set()
        signal.pause()


@contextmanager
def training_elsewhere(folder):
    """Yields a process that has the lock of ``folder``."""
    context = multiprocessing.get_context("fork")
    ready = context.Event()
    process = context.Process(target=hold, args=(str(folder), ready))
    process.start()
    try:
        assert ready.wait(20)
        yield process
    finally:
        process.kill()
        process.join()


def test_a_second_training_is_refused_before_it_touches_anything(toy_data, tmp_path):
    train(toy_data, *ONE_UPDATE, "--save-dir", tmp_path)
    before = (tmp_path / "checkpoint_last.pt").read_bytes()
    with training_elsewhere(tmp_path) as process:
        again = error_of(toy_data, *ONE_UPDATE, "--max-update", "9", "--save-dir", tmp_path)
        expected = f"--save-dir {tmp_path}: process {process.pid} on {HERE} is training there; wait until it ends, or give another folder"
        assert again == (f"fairseq-train: error: {expected}\n", 2)
        assert {path.name for path in tmp_path.iterdir()} == {"checkpoint_last.pt", NAME}
        assert (tmp_path / "checkpoint_last.pt").read_bytes() == before
        # One that saves nothing may go on beside it.
        assert error_of(toy_data, *ONE_UPDATE, "--no-save", "--save-dir", tmp_path) == ("", 0)
    # That process was killed: its lock is there, and nobody's.
    assert json.loads((tmp_path / NAME).read_text())["process"] == process.pid
    assert error_of(toy_data, *ONE_UPDATE, "--max-update", "2", "--save-dir", tmp_path) == ("", 0)
    assert {path.name for path in tmp_path.iterdir()} == {"checkpoint_last.pt"}


def test_every_training_of_a_process_may_use_the_folder(tmp_path):
    for _ in range(2):
        with held(tmp_path / "new" / "folder"):
            assert json.loads((tmp_path / "new" / "folder" / NAME).read_text())["process"] == os.getpid()
    with pytest.raises(KeyError), held(tmp_path):
        raise KeyError
    assert not (tmp_path / NAME).exists()


def lock_of(tmp_path, **owner):
    (tmp_path / NAME).write_text(
        json.dumps({"host": "far", "process": 7, "boot": "another", "job": None, "restart": None} | owner)
    )


def test_the_lock_of_another_host_is_not_known_to_be_nobodys(tmp_path):
    lock_of(tmp_path)
    with pytest.raises(InputError) as refused, held(tmp_path):
        pass
    assert str(refused.value) == (
        f"--save-dir {tmp_path}: process 7 on far uses this folder, or was killed. This cannot be checked from {HERE}; "
        f"if the process has ended, delete {tmp_path / NAME}"
    )
    (tmp_path / NAME).unlink()
    with held(tmp_path):
        pass


@pytest.mark.parametrize(
    "owner, environment",
    [
        ({"host": HERE}, {}),  # before this machine was started anew
        ({"boot": save_dir_lock._boot()}, {}),  # a container of this machine
        (
            {"job": "12", "restart": None},
            {"SLURM_JOB_ID": "12", "SLURM_RESTART_COUNT": "1"},
        ),  # queued again, now on this host
    ],
)
def test_a_lock_whose_owner_must_have_ended_is_taken_over(owner, environment, tmp_path, monkeypatch):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    lock_of(tmp_path, **owner)
    with held(tmp_path):
        assert json.loads((tmp_path / NAME).read_text())["process"] == os.getpid()
    assert not (tmp_path / NAME).exists()


@pytest.mark.parametrize("owner", [{"job": "12", "restart": "1"}, {"job": "11", "restart": None}, {"job": None}])
def test_another_job_or_another_task_of_this_one_is_still_another_training(owner, tmp_path, monkeypatch):
    monkeypatch.setenv("SLURM_JOB_ID", "12")
    monkeypatch.setenv("SLURM_RESTART_COUNT", "1")
    lock_of(tmp_path, **owner)
    with pytest.raises(InputError, match="process 7 on far"), held(tmp_path):
        pass


NO_OWNERS = [
    "",
    "{",
    "[]",
    "3",
    "[",
    "[" * 4096,
    "\xff",
    "null",
    '{"host": "far"}',
    '{"host": "far", "process": "x"}',
] + ['{"host": [], "process": 7}', '{"host": "far", "process": -1}', '{"host": "far", "process": 1e400}']


@pytest.mark.parametrize("text", NO_OWNERS, ids=range(len(NO_OWNERS)))
def test_a_lock_that_names_no_owner_is_nobodys(text, tmp_path):
    (tmp_path / NAME).write_bytes(text.encode("latin-1"))
    with held(tmp_path):
        pass


def test_without_locks_of_the_file_system_a_living_process_has_it(tmp_path, monkeypatch):
    monkeypatch.setattr(save_dir_lock, "_locked", lambda lock: None)
    for process, message in (
        (os.getpid(), f"process {os.getpid()} on {HERE} is training there; wait"),
        (2**22 + 1, None),
    ):
        lock_of(tmp_path, host=HERE, process=process)
        if message:
            with pytest.raises(InputError, match=message), held(tmp_path):
                pass
    with held(tmp_path):
        pass


@pytest.mark.parametrize("code", [errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP])
def test_a_file_system_without_locks_works(code, tmp_path, monkeypatch):
    def refuse(*args):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(save_dir_lock.fcntl, "lockf", refuse)
    with held(tmp_path):
        with pytest.raises(InputError, match=f"process {os.getpid()} on {HERE} is training there"), held(tmp_path):
            pass
    assert list(tmp_path.iterdir()) == []


def test_a_planted_link_is_refused_and_not_written_to(tmp_path):
    (tmp_path / "precious").write_text("precious")
    (tmp_path / NAME).symlink_to("precious")
    with pytest.raises(InputError, match=f"--save-dir: {tmp_path / NAME} cannot be written"), held(tmp_path):
        pass
    assert (tmp_path / "precious").read_text() == "precious"


def test_what_a_killed_training_half_wrote_is_removed_and_nothing_else(tmp_path):
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    names = [f"checkpoint_last.pt.{gone.pid}.tmp", f"checkpoint_1_20-shard0.pt.{gone.pid}.tmp"]
    others = [
        f"checkpoint_last.pt.{os.getpid()}.tmp",
        f"mean.pt.{gone.pid}.tmp",
        "checkpoint_last.pt",
        "checkpoint_mine.tmp",
    ]
    for name in names + others:
        (tmp_path / name).touch()
    with held(tmp_path):
        assert {path.name for path in tmp_path.iterdir()} == {*others, NAME}

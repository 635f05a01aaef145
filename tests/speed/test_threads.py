"""--threads: numbers, auto on a machine that is busy and is not, and refusals."""

import subprocess
import sys
import time

import fairseq_cli.train
import pytest
import torch

from fairseq_reservoir.errors import InputError
from fairseq_reservoir.speed import threads
from tests.support.commands import command_line, error_of, train

PLAN = ("--reservoir-encoder", "LT", "--reservoir-decoder", "L", "--no-save", "--disable-validation")


@pytest.fixture(autouse=True)
def as_before(monkeypatch):
    monkeypatch.setenv(threads.THREADS, "")
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("cores, others, most, found", [
    (2, 0.0, 2, 2), (2, 0.2, 2, 2), (2, 0.3, 2, 1), (2, 1.0, 2, 1), (2, 2.0, 2, 1), (16, 10.0, 16, 6), (16, 0.0, 4, 4), (4, 9.0, 4, 1),
])  # fmt: skip
def test_threads_for_what_others_leave_free(cores, others, most, found):
    assert threads.threads_for(cores, others, most) == found


def test_a_number(toy_data):
    train(toy_data, *PLAN, "--max-update", 1, "--threads", 3)
    assert torch.get_num_threads() == 3


@pytest.mark.parametrize("text", ["0", "-1", "many", "1.5", "²", "1025", "9" * 25])
def test_others_are_refused_before_data_is_read(toy_data, tmp_path, text):
    errors, status = error_of(toy_data, *PLAN, "--threads", text)
    assert (errors.splitlines()[-1], status) == (
        f"fairseq-train: error: --threads {text} (or {threads.THREADS}): must be auto or a whole number from 1 to 1024", 2
    )  # fmt: skip


@pytest.mark.parametrize("text", ["", "  "])
def test_empty_is_not_the_same_as_left_out(toy_data, text):
    errors, status = error_of(toy_data, *PLAN, "--threads", text)
    message = f"fairseq-train: error: --threads {text!r}: is empty; give auto or a number, or leave it out"
    assert (errors.splitlines()[-1], status) == (message, 2)


def test_auto_needs_a_machine_that_says_how_busy_it_is(monkeypatch):
    monkeypatch.setenv(threads.THREADS, "auto")
    monkeypatch.setattr(threads, "cores_busy", lambda: None)
    with pytest.raises(InputError, match="^--threads auto: only Linux says"):
        threads.asked()


def machine(monkeypatch, cores):
    """A clock, busy seconds of all cores and own seconds, to be moved on by hand, and a watch that reads them."""
    seen = [0.0, 0.0, 0.0]
    monkeypatch.setattr(threads.time, "perf_counter", lambda: seen[0])
    monkeypatch.setattr(threads.time, "process_time", lambda: seen[2])
    monkeypatch.setattr(threads, "cores_busy", lambda: seen[1])
    monkeypatch.setattr(threads.os, "sched_getaffinity", lambda _: range(cores))
    torch.set_num_threads(cores)
    watch = threads.Watch()

    def move(seconds, busy, own):
        for i, change in enumerate((seconds, busy, own)):
            seen[i] += change
        watch.look()
        return torch.get_num_threads()

    return move


def test_auto_gives_back_at_once_and_takes_after_two_looks(monkeypatch):
    move = machine(monkeypatch, 2)
    assert move(1, 2, 1) == 2  # too early to look
    assert move(1, 2, 1) == 1  # in two seconds the cores worked four, two of them for others
    assert move(2, 2.2, 2) == 1  # alone again; once may be chance
    assert move(2, 2.2, 2) == 2
    assert move(2, 4, 3.8) == 2
    assert move(2, 4, 3) == 1
    assert [move(2, 2.2, 2), move(2, 4, 2), move(2, 2.2, 2), move(2, 2.2, 2)] == [1, 1, 1, 2]


def test_busy_cores_are_counted():
    """With one process that spins, a core is busy for as long as it runs, and this process sleeps."""
    spinning = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        time.sleep(0.1)
        began, own = threads.cores_busy(), time.process_time()
        time.sleep(1)
        assert threads.cores_busy() - began > 0.4 and time.process_time() - own < 0.1
    finally:
        spinning.kill()
        spinning.wait()


def test_without_the_flag_nobody_looks(toy_data, monkeypatch):
    monkeypatch.setattr(threads, "cores_busy", lambda: pytest.fail("looked"))
    before = torch.get_num_threads()
    run = train(toy_data, *PLAN, "--max-update", 1)
    assert torch.get_num_threads() == before and run.trainer.thread_watch is None


def test_auto_trains(toy_data, caplog, monkeypatch):
    monkeypatch.setattr(threads, "PERIOD", 0.0)
    caplog.set_level("INFO")
    run = train(toy_data, *PLAN, "--max-update", 4, "--threads", "auto")
    assert len(run.losses) == 4 and 1 <= torch.get_num_threads() <= run.trainer.thread_watch.most
    assert any(record.getMessage().startswith("threads: up to ") for record in caplog.records)


def test_help_of_a_training_says_where_the_other_flags_are(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", command_line("no-data", "--help"))
    with pytest.raises(SystemExit):
        fairseq_cli.train.cli_main()
    assert capsys.readouterr().out.endswith("Flags of layers, freezing and masks: fairseq-reservoir plan --help\n")

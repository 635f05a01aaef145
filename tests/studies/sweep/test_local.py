"""Runs on this machine: failures, interrupts, resuming, several at a time, two sweeps at once."""

import errno
import os
import signal
import socket
from types import SimpleNamespace
from unittest.mock import Mock

import pytest

from fairseq_reservoir.studies.sweep import local
from fairseq_reservoir.studies.sweep.grid import read_grid

FAILS = "command: sh -c 'echo $0; exit $0'\narms: {good: '0', bad: '3', fine: '0'}\n"


def is_alive(process_id):
    """Return whether a process runs. A zombie does not."""
    try:
        with open(f"/proc/{process_id}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_failed_run_is_marked_and_the_others_continue(sweep, capsys):
    assert sweep.write(FAILS)() == 1
    assert sweep.states() == {"bad": "failed sh 3", "fine": "done", "good": "done"}
    out = capsys.readouterr().out
    assert f"[2/3] bad: failed: sh, exit status 3, see {sweep.out}/bad/sh.out (0.0 min)\n    3\nfine: started" in out
    assert "\n[3/3] fine: done" in out
    assert [line.split()[:3] for line in out.splitlines()[-4:]] == [
        ["good", "0.0", "done"], ["bad", "0.0", "failed:"], ["3"], ["fine", "0.0", "done"],
    ]  # fmt: skip
    # No run starts again, failed or not, and the exit status is the same.
    assert sweep() == 1 and sweep.output("good") == ["0"] and sweep.output("bad") == ["3"]
    assert "3 runs in" in (out := capsys.readouterr().out) and ", 0 of them to do" in out
    assert sweep("--retry-failed") == 1 and sweep.output("good") == ["0"] and sweep.output("bad") == ["3", "3"]


def test_a_sweep_of_good_runs_succeeds(sweep):
    assert sweep.write("command: sh -c 'echo $X $SEED'\nenvironment: {X: [1, 2], SEED: [5, 6]}")("--jobs", "3") == 0
    assert sweep.states() == dict.fromkeys(["x1-5", "x1-6", "x2-5", "x2-6"], "done") and sweep.output("x2-6") == [
        "2",
        "6",
    ]


def test_steps_run_in_order_and_a_failed_one_is_retried(sweep):
    sweep.write(
        "command: sh -c 'echo one'\n"
        "then:\n"
        "  - sh -c 'echo two; test -f {out}/there'\n"
        "  - sh -c 'echo three'\n"
        "axes: {a: [1]}\n"
    )
    assert sweep() == 1 and sweep.states() == {"a1": "failed sh-2 1"} and not (sweep.out / "a1" / "sh-3.out").exists()
    (sweep.out / "a1" / "there").touch()
    assert sweep("--retry-failed") == 0
    # The first step does not run again, and the log of the second starts empty.
    assert [sweep.output("a1", log) for log in ("sh.out", "sh-2.out", "sh-3.out")] == [["one"], ["two"], ["three"]]


# The first time it writes its process id and sleeps. The second time it prints "again".
SLEEPS = (
    "command: sh -c 'test -f {out}/first && echo again || { echo $$ > {out}/1; mv {out}/1 {out}/first; sleep 60; }'\n"
)


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_ends_the_commands_and_leaves_all_resumable(how, sweep, capfd):
    process = sweep.write(f"{SLEEPS}axes: {{seed: [1, 2, 3]}}").start("--jobs", "2")
    first = [sweep.out / f"run-{seed}" / "first" for seed in (1, 2)]
    sweep.wait_for(lambda: all(file.exists() for file in first))
    os.kill(process.pid, how)
    process.join(60)
    assert process.exitcode == 130
    assert not any(is_alive(file.read_text().strip()) for file in first)
    assert sweep.states() == {"run-1": "running sh", "run-2": "running sh", "run-3": "waiting"}
    assert "run-2           interrupted: sh\nrun-3           waiting\n" in capfd.readouterr().out
    (sweep.out / "run-3").joinpath("first").touch()
    assert sweep() == 0 and [sweep.output(f"run-{seed}") for seed in (1, 2, 3)] == [["again"]] * 3


# The first time it writes its process id and waits for the file "end". At its end it prints "over". Another step follows.
WAITS = (
    "command: sh -c 'test -f {out}/first || { echo $$ > {out}/1; mv {out}/1 {out}/first; };"
    " until test -f {out}/end; do sleep 0.05; done; echo over'\n"
    "then: [sh -c 'echo then']\n"
)


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_orphaned_commands_are_waited_for_and_their_runs_resumed(jobs, sweep, capfd):
    process = sweep.write(f"{WAITS}axes: {{seed: [1, 2]}}").start()
    first, second = (sweep.out / f"run-{seed}" / "first" for seed in (1, 2))
    sweep.wait_for(
        lambda: first.exists() and (sweep.out / "run-1" / "lock").read_text().split()[2:] == [first.read_text().strip()]
    )
    process.kill()
    process.join()
    again = sweep.start("--jobs", jobs)
    waits = f"run-1: waiting for process {first.read_text().strip()} on {socket.gethostname()}, left by a sweep that has ended\n"
    printed = []
    sweep.wait_for(lambda: printed.append(capfd.readouterr().out) or waits in "".join(printed))
    if jobs == "2":  # one of two places is free
        sweep.wait_for(second.exists)
    else:
        assert not second.exists()
    assert again.is_alive() and sweep.output("run-1") == []
    for run in ("run-1", "run-2"):
        (sweep.out / run / "end").touch()
    again.join(30)
    assert again.exitcode == 0 and sweep.states() == {"run-1": "done", "run-2": "done"}
    # No sweep saw the end of that step, so it runs again, as after every interrupt. Then the next step runs.
    assert (
        sweep.output("run-1") == ["over", "over"]
        and [sweep.output(run, "sh-2.out") for run in ("run-1", "run-2")] == [["then"]] * 2
    )


def test_an_interrupt_ends_the_waiting_and_not_the_runs_of_others(sweep, capfd):
    process = sweep.write(f"{SLEEPS}axes: {{seed: [1]}}").start()
    first = sweep.out / "run-1" / "first"
    sweep.wait_for(
        lambda: first.exists() and (sweep.out / "run-1" / "lock").read_text().split()[2:] == [first.read_text().strip()]
    )
    printed = []
    again = sweep.start()
    waits = f"on {socket.gethostname()}, started by another sweep (process {process.pid})\n"
    sweep.wait_for(lambda: printed.append(capfd.readouterr().out) or waits in "".join(printed))
    os.kill(again.pid, signal.SIGINT)
    again.join(30)
    assert again.exitcode == 130 and is_alive(first.read_text().strip())
    os.kill(process.pid, signal.SIGINT)
    process.join(30)


@pytest.mark.parametrize("what", ["state", "command"])
def test_a_full_disk_is_one_line_and_leaves_all_resumable(what, sweep, monkeypatch, capsys):
    sweep.write("command: sh -c 'echo done'\naxes: {seed: [1, 2]}")
    replace = os.replace

    def full(source, target):
        if target == sweep.out / "run-2" / what:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        replace(source, target)

    monkeypatch.setattr(os, "replace", full)
    line = f"--out: {sweep.out}/run-2/{what} cannot be written (No space left on device)"
    if what == "command":  # before anything runs
        assert sweep() == f"fairseq-reservoir: error: {line}"
    else:  # other runs continue
        assert sweep() == 1 and line in capsys.readouterr().out.splitlines()
        assert sweep.states() == {"run-1": "done", "run-2": "waiting"}
    assert not list(sweep.out.glob("*/*.tmp"))
    monkeypatch.undo()
    assert sweep() == 0 and sweep.output("run-1") == ["done"]


def test_a_removed_folder_is_reported_and_the_others_continue(sweep, capsys):
    sweep.write("command: sh -c 'test $0 = stay || rm -rf {out}'\narms: {a: stay, b: go, c: stay}")
    assert sweep() == 1 and sweep.states() == {"a": "done", "c": "done"}
    out = capsys.readouterr().out
    assert f"--out: {sweep.out}/b/state cannot be written (No such file or directory)" in out and "3/3] c: done" in out


@pytest.mark.parametrize("state, described", [("failed", "failed: ?, exit status ?"), ("running", "interrupted: ?")])
def test_a_state_with_missing_words(state, described, sweep, capsys):
    sweep.write("command: sh -c 'echo one'\naxes: {a: [1]}")
    assert sweep() == 0
    (sweep.out / "a1" / "state").write_text(f"{state}\n")
    sweep("--dry-run")
    assert f"a1: {described}" in capsys.readouterr().out


def test_a_killed_command_has_failed_and_a_terminated_one_was_interrupted(sweep, capsys):
    sweep.write("command: sh -c 'kill -$0 $$'\narms: {killed: KILL, ended: TERM}")
    assert sweep() == 1 and sweep.states() == {"ended": "running sh", "killed": "failed sh 137"}
    assert "interrupted: sh" in capsys.readouterr().out


def test_a_shell_whose_command_was_terminated_was_interrupted(sweep):
    """A shell returns 128 plus the number of the signal that ended its command."""
    sweep.write("command: sh -c 'sh -c \"kill -$0 \\$\\$\"; exit $?'\narms: {killed: KILL, ended: TERM, told: USR1}")
    assert sweep() == 1 and sweep.states() == {"ended": "running sh", "killed": "failed sh 137", "told": "running sh"}


def test_a_command_that_cannot_start_has_failed_and_the_others_continue(sweep, tmp_path):
    tool = tmp_path / "tool"
    tool.write_text("#!/bin/sh\n")
    tool.chmod(0o755)
    # The first step of run a makes a folder in place of the log. That of run c writes a tool that cannot start.
    sweep.write(
        "command: sh -c 'eval \"$0\"'\n"
        f"then: ['{tool}']\n"
        'arms:\n  a: "\'mkdir {out}/tool.out\'"\n  b: "true"\n'
        f'  c: "\'echo \\"#!/no/such/shell\\" > {tool}\'"\n'
    )
    assert sweep() == 1
    assert sweep.states() == {"a": "failed tool 127", "b": "done", "c": "failed tool 127"}
    assert sweep.output("c", "tool.out")[:2] == ["[Errno", "2]"]


def test_two_sweeps_share_the_runs(sweep):
    sweep.write("command: sh -c 'echo once; sleep 0.2'\naxes: {seed: [1, 2, 3, 4, 5, 6]}")
    both = [sweep.start("--jobs", "2") for _ in range(2)]
    for process in both:
        process.join(30)
    assert [process.exitcode for process in both] == [0, 0]
    assert sweep.states() == {f"run-{seed}": "done" for seed in range(1, 7)}
    assert all(sweep.output(run) == ["once"] for run in sweep.states())


# Ends when as many runs have started as its argument says.
MEET = (
    "command: sh -c 'touch {out}/here; until [ $(ls {out}/../*/here | wc -l) -ge $0 ]; do sleep 0.05; done;"
    " echo $CUDA_VISIBLE_DEVICES $OMP_NUM_THREADS'\n"
)


def test_several_at_a_time_have_a_gpu_each_and_their_share_of_the_cores(sweep, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,5")
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    assert sweep.write(f"{MEET}arms: {{run: '3'}}\naxes: {{seed: [1, 2, 3]}}")("--jobs", "3") == 0
    share = str(max(1, len(os.sched_getaffinity(0)) // 3))
    assert [sweep.output(f"run-{seed}") for seed in (1, 2, 3)] == [["3", share], ["5", share], ["3", share]]


def test_added_runs_begin_while_others_are_running(sweep):
    """`quick` adds `added` and `old`. `slow` ends after `added` has started. `old` is done already and does not run again."""
    sweep.write(
        "command: sh -c 'echo $0; touch {out}/here; until [ -e {out}/../$0/here ]; do sleep 0.05; done'\n"
        "arms: {slow: added, quick: quick, added: added, old: old}\n"
    )
    slow, quick, added, old = read_grid(str(sweep.grid), str(sweep.out))[0]
    over, follow = [], {"quick": [added, old]}
    for run in (slow, quick, added, old):
        run.prepare()
    old.write("state", "done")
    end, next_runs = lambda run, minutes: over.append(run.name), lambda: follow.pop(over[-1], [])
    assert local.run_all([slow, quick], 2, False, end, next_runs, Mock())
    assert over[0] == "quick" and set(over[1:]) == {"slow", "added"} and not follow
    assert not (sweep.out / "old" / "sh.out").exists()


def test_one_at_a_time_has_everything(sweep, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,5")
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    assert sweep.write(f"{MEET}arms: {{run: '1'}}")() == 0 and sweep.output("run") == ["3,5"]


@pytest.mark.parametrize("own", [None, "active"])
def test_waiting_threads_sleep_unless_the_user_has_set_the_policy(sweep, monkeypatch, own):
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    if own:
        monkeypatch.setenv("OMP_WAIT_POLICY", own)
    sweep.write("command: sh -c 'echo $OMP_WAIT_POLICY'\narms: {run: ''}")()
    assert sweep.output("run") == [own or "passive"]


def test_gpus_are_counted(sweep, monkeypatch, tmp_path):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    tool = tmp_path / "bin" / "nvidia-smi"
    tool.parent.mkdir()
    tool.write_text("#!/bin/sh\nprintf '0\\n1\\n'\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tool.parent), prepend=os.pathsep)
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    assert sweep.write(f"{MEET}arms: {{run: '2'}}\naxes: {{seed: [1, 2]}}")("--jobs", "2") == 0
    assert [sweep.output(f"run-{seed}") for seed in (1, 2)] == [["0", "7"], ["1", "7"]]


def test_a_grid_that_has_changed_is_refused_by_name_before_anything_runs(sweep):
    sweep.write("command: sh -c 'echo a'\naxes: {seed: [2]}")()
    message = sweep.write("command: sh -c 'echo b'\naxes: {seed: [1, 2]}")()
    folder = sweep.out / "run-2"
    refusal = (
        f"--out: {folder} belongs to a run with different commands (see {folder}/command);"
        " choose a different --out, or move this folder away"
    )
    assert message == f"fairseq-reservoir: error: {refusal}"
    assert not (sweep.out / "run-1").exists() and sweep.output("run-2") == ["a"]
    # A grid with more runs is not refused.
    assert sweep.write("command: sh -c 'echo a'\naxes: {seed: [1, 2]}")() == 0 and sweep.output("run-2") == ["a"]


def test_a_grid_without_fairseq(sweep, monkeypatch):
    monkeypatch.setattr("fairseq_reservoir.studies.sweep.run.find_spec", lambda name: None)
    message = sweep.write("command: fairseq-brain")()
    assert message.endswith(
        "GRID: fairseq-brain: no such command; it needs fairseq: run bash scripts/setup.sh in a clone"
    )


def test_folders_of_others_and_unknown_commands_are_refused(sweep):
    (sweep.out / "run").mkdir(parents=True)
    (sweep.out / "run" / "thesis.tex").touch()
    refusal = f"--out: {sweep.out}/run exists, but is not the folder of a run; choose a different --out"
    assert sweep.write("command: sh -c 'echo'")() == f"fairseq-reservoir: error: {refusal}"
    assert sweep.write("command: fairseq-brain")() == "fairseq-reservoir: error: GRID: fairseq-brain: no such command"


def test_a_dry_run_prints_and_writes_nothing(sweep, capsys):
    sweep.write("command: sh -c 'echo $X'\nenvironment: {X: 1 2}\naxes: {seed: [1, 2]}")
    assert sweep("--dry-run") == 0 and not sweep.out.exists()
    first = ["run-1: waiting", "  X='1 2' sh -c 'echo $X' --seed 1"]
    assert capsys.readouterr().out.splitlines()[:2] == first
    sweep()
    assert (sweep.out / "run-1" / "command").read_text() == "X='1 2' sh -c 'echo $X' --seed 1\n"


@pytest.mark.parametrize(
    "flags, message",
    [
        (["--jobs", "0"], "--jobs 0: must be at least 1"),
        (["--slurm-gpus", "2"], "--slurm-gpus 2: has no effect without --slurm"),
        (["--slurm", "--slurm-time", "0"], "--slurm-time 0: must be at least 1"),
        (["--slurm"], "--slurm: sbatch is not found; start the sweep on a machine that can submit jobs"),
    ],
)
def test_wrong_flags_are_named(flags, message, sweep, monkeypatch):
    monkeypatch.setattr("fairseq_reservoir.studies.sweep.slurm.shutil", SimpleNamespace(which=lambda name: None))
    assert sweep.write("command: sh -c 'echo'")(*flags) == f"fairseq-reservoir: error: {message}"
    assert not sweep.out.exists()

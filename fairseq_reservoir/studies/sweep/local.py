"""Run a sweep on this machine, several runs at a time.

Unlike ``slurm.py``, this module does not use submitit, for four reasons:

- On an interrupt, submitit's local executor kills a job after 1 s, but not the command that the job has started. If the command needs
  more than 1 s to save a checkpoint, it continues after the sweep has ended.
- submitit accepts GPUs only by number, and hides all GPUs from a job without a GPU number.
- If the sweep is killed, a job of submitit continues and keeps the run's lock. The run then seems to belong to a different sweep.
- Each job needs two Python processes in addition to the command.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from typing import Protocol

from ...errors import InputError, in_one_line
from .run import ActiveRun, Run, begin

_POLL_SECONDS = 0.1
OnEnd = Callable[[Run, float], None]
NextRuns = Callable[[], list[Run]]


class Watcher(Protocol):
    """Receiver of the events of a running sweep."""

    def say(self, text: object) -> None:
        """Print a message."""

    def follow(self, run: Run, is_resumed: bool) -> None:
        """Follow a run that was started or submitted. ``is_resumed`` is True if the run continues an interrupted run."""

    def look(self) -> None:
        """Report new events. Called several times a second."""


def run_all(
    runs: list[Run],
    jobs: int,
    retry_failed: bool,
    on_end: OnEnd,
    next_runs: NextRuns,
    watcher: Watcher,
) -> bool:
    """Run all due runs, up to ``jobs`` at a time. Return True when all have ended. After Ctrl-C, end all commands and return False.

    If ``jobs`` is above 1, each run gets the GPU with the fewest runs, and an equal share of the cores. If another sweep has started a run,
    this sweep waits until the run stops. If the run is then unfinished, this sweep resumes it. This sweep also waits for orphaned commands,
    which a killed sweep has left running. Orphaned commands count towards ``jobs``.

    Args:
        runs: the runs.
        jobs: largest number of runs at a time.
        retry_failed: whether to run failed runs again.
        on_end: called after each run, with two arguments: the run, and its duration in minutes.
        next_runs: returns the runs to add. It is called after ``on_end``, and when no run is left.
        watcher: receives the events of the sweep.
    """
    queue = Queue(runs, retry_failed, on_end, next_runs, watcher)
    active: dict[ActiveRun, str | None] = {}  # the GPU of each run
    gpus = devices() if jobs > 1 else []
    with interrupts() as interrupted:
        try:
            while not interrupted and (active or queue.has_more()):
                queue.take_back()
                while queue.waiting and len(active) + queue.foreign.count_orphaned() < jobs:
                    environment = _environment(jobs, gpus, list(active.values()))
                    if started := _begin_next(queue, environment):
                        active[started] = environment.get("CUDA_VISIBLE_DEVICES")
                time.sleep(_POLL_SECONDS)
                watcher.look()
                for run in list(active):
                    if _has_ended(run, watcher):
                        del active[run]
                        queue.end(run.run, run.minutes)
        finally:
            for run in active:
                run.terminate()
            for run in active:
                run.end()
    return not interrupted


def _environment(jobs: int, gpus: list[str], taken: list) -> dict[str, str]:
    """Return the environment variables that assign cores and a GPU to a run.

    The run gets an equal share of the cores, and the GPU with the fewest active runs. ``taken`` lists the GPU of each active run.
    """
    environment: dict[str, str] = {}
    if jobs > 1 and "OMP_NUM_THREADS" not in os.environ:
        environment["OMP_NUM_THREADS"] = str(max(1, len(os.sched_getaffinity(0)) // jobs))
    if gpus:
        environment["CUDA_VISIBLE_DEVICES"] = min(gpus, key=taken.count)
    return environment


def _begin_next(queue: "Queue", environment: dict[str, str]) -> ActiveRun | None:
    """Start the first waiting run. Return None if this is not possible.

    If another sweep has started a run, the run becomes a foreign run. A run with a folder that cannot be written counts as ended.
    """
    run = queue.waiting.pop(0)
    is_resumed = run.state[0] == "running"
    try:
        started = begin(run, queue.retry_failed, environment)
    except InputError as error:
        queue.watcher.say(error)
        queue.end(run, 0.0)
        return None
    if started is None:
        queue.foreign.add(run)
    else:
        queue.watcher.follow(run, is_resumed)
    return started


def _has_ended(run: ActiveRun, watcher: Watcher) -> bool:
    """Return whether a run has ended. If its folder cannot be written any more, stop the run and return True."""
    try:
        return run.poll()
    except InputError as error:
        watcher.say(error)
        run.terminate()
        run.end()
        return True


class Queue:
    """The runs of a sweep that are not started yet (waiting), and the runs that another sweep has started (foreign).

    Args:
        runs: the runs of the sweep.
        retry_failed, on_end, next_runs, watcher: see ``run_all``.
    """

    def __init__(self, runs: list[Run], retry_failed: bool, on_end: OnEnd, next_runs: NextRuns, watcher: Watcher):
        self.retry_failed, self.on_end, self.next_runs, self.watcher = retry_failed, on_end, next_runs, watcher
        self.foreign = ForeignRuns(watcher)
        self.waiting = self.foreign.split_off([run for run in runs if run.is_due(retry_failed)])

    def has_more(self) -> bool:
        """Return whether there are waiting or foreign runs. If there are none, first try to add the next runs."""
        if not (self.waiting or self.foreign.runs):
            self._add()
        return bool(self.waiting or self.foreign.runs)

    def end(self, run: Run, minutes: float) -> None:
        """Report a run that has ended, and add the next runs."""
        self.on_end(run, minutes)
        self._add()

    def take_back(self) -> None:
        """Put a foreign run back among the waiting runs if the run is still due and no process holds its lock any more."""
        self.waiting += self.foreign.released(self.retry_failed, self.end)

    def _add(self):
        self.waiting += [run for run in self.next_runs() if run.is_due(self.retry_failed)]


class ForeignRuns:
    """Runs that another sweep has started. This sweep waits for them. The other sweep may have been killed while its commands still run."""

    def __init__(self, watcher: Watcher) -> None:
        self.watcher = watcher
        self.runs: list[tuple[Run, float]] = []  # with the time when this sweep began to wait

    def add(self, run: Run) -> None:
        self.runs.append((run, time.monotonic()))
        if run.is_locked():
            host, sweep, command = run.holder or ("?", "?", "?")
            owner = (
                "left by a sweep that has ended" if run.is_orphaned else f"started by another sweep (process {sweep})"
            )
            self.watcher.say(in_one_line(f"{run.name}: waiting for process {command} on {host}, {owner}"))

    def split_off(self, runs: list[Run]) -> list[Run]:
        """Add the ``runs`` that another sweep is running. Return all other runs."""
        foreign = [run for run in runs if run.state[0] == "running" and run.is_locked()]
        for run in foreign:
            self.add(run)
        return [run for run in runs if run not in foreign]

    def count_orphaned(self) -> int:
        return sum(run.is_orphaned for run, _ in self.runs)

    def released(self, retry_failed: bool, on_end: OnEnd) -> list[Run]:
        """Remove the runs whose lock has been released.

        Return the removed runs that are still due. Call ``on_end`` for all other removed runs.
        """
        free = [pair for pair in self.runs if not _is_locked(pair[0])]
        self.runs = [pair for pair in self.runs if pair not in free]
        due = [run for run, _ in free if run.is_due(retry_failed)]
        for run, since in free:
            if run not in due:
                on_end(run, (time.monotonic() - since) / 60)
        return due


def _is_locked(run):
    """Return whether a process holds the run's lock; False if the run's folder has become unusable."""
    with contextlib.suppress(InputError):
        return run.is_locked()
    return False


def perform(run: Run, retry_failed: bool) -> None:
    """Start one run and wait until it ends. If this process is interrupted, the run's command is terminated."""
    active = begin(run, retry_failed, {})
    if not active:
        return
    try:
        while not active.poll():
            time.sleep(_POLL_SECONDS)
    except BaseException:
        active.terminate()
        active.end()
        raise


@contextlib.contextmanager
def interrupts() -> Iterator[list[int]]:
    """Collect Ctrl-C, SIGTERM and SIGHUP in a list, so that they do not end this process. Signals that are already ignored stay ignored."""
    received: list[int] = []
    handled = [n for n in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP) if signal.getsignal(n) != signal.SIG_IGN]
    before = {number: signal.signal(number, lambda number, frame: received.append(number)) for number in handled}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def devices() -> list[str]:
    """Return the usable GPUs, named as in CUDA_VISIBLE_DEVICES."""
    if "CUDA_VISIBLE_DEVICES" in os.environ:
        return [name for name in os.environ["CUDA_VISIBLE_DEVICES"].split(",") if name]
    if not shutil.which("nvidia-smi"):
        return []
    listed = subprocess.run(
        ["nvidia-smi", "--query-gpu=index", "--format=csv,noheader"], capture_output=True, text=True
    )
    return listed.stdout.split() if listed.returncode == 0 else []

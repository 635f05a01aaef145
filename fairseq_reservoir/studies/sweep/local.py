"""Runs on this machine, several at a time."""

import contextlib
import os
import shutil
import signal
import subprocess
import time

from ...errors import InputError, in_one_line
from .run import Run, begin

_POLL_SECONDS = 0.1


def run_all(runs: list[Run], jobs: int, retry_failed: bool, say, following=list) -> bool:
    """Runs what is due, ``jobs`` at a time; returns False where an interrupt ended that, and all commands with it.

    Of several, each has one of the GPUs in turn, where there are any, and its share of the cores; one alone has all of them.
    A run that somebody else has begun is waited for, and gone on with if it is then not over. So the commands that a killed sweep
    has left come to their end, and what is to follow them is done; they count among the ``jobs``.

    Args:
        say: called with a run and its minutes when it is over.
        following: called after that, and when nothing is left; the runs to add.
    """
    queue = Queue(runs, retry_failed, say, following)
    active: dict = {}  # devices by what is under way
    gpus = devices() if jobs > 1 else []
    shared = {}
    if jobs > 1 and "OMP_NUM_THREADS" not in os.environ:
        shared["OMP_NUM_THREADS"] = str(max(1, len(os.sched_getaffinity(0)) // jobs))
    with interrupts() as interrupted:
        try:
            while not interrupted and (active or queue.has_more()):
                queue.take_back()
                while queue.waiting and len(active) + queue.elsewhere.count_left_over() < jobs:
                    run, environment = queue.waiting.pop(0), dict(shared)
                    if gpus:
                        taken = list(active.values())
                        environment["CUDA_VISIBLE_DEVICES"] = min(gpus, key=taken.count)
                    try:
                        under_way = begin(run, retry_failed, environment)
                    except InputError as error:
                        print(error, flush=True)
                        queue.over(run, 0.0)
                        continue
                    if under_way:
                        active[under_way] = environment.get("CUDA_VISIBLE_DEVICES")
                    else:
                        queue.elsewhere.add(run)
                time.sleep(_POLL_SECONDS)
                for under_way in list(active):
                    if _is_over(under_way):
                        del active[under_way]
                        queue.over(under_way.run, under_way.minutes)
        finally:
            for under_way in active:
                under_way.terminate()
            for under_way in active:
                under_way.end()
    return not interrupted


def _is_over(under_way) -> bool:
    """Whether a run is over; one whose folder cannot be written any more is ended, and the others go on."""
    try:
        return under_way.poll()
    except InputError as error:
        print(error, flush=True)
        under_way.terminate()
        under_way.end()
        return True


class Queue:
    """The runs that wait for their turn, those that somebody else is at, and what follows from those that are over.

    Args:
        say, following: as of ``run_all``.
    """

    def __init__(self, runs: list[Run], retry_failed: bool, say, following):
        self.retry_failed, self.say, self.following = retry_failed, say, following
        self.elsewhere = Elsewhere()
        self.waiting = self.elsewhere.without_begun([run for run in runs if run.is_due(retry_failed)])

    def has_more(self) -> bool:
        """Whether anything waits or is waited for; asks what follows before it says no."""
        if not (self.waiting or self.elsewhere.runs):
            self._add()
        return bool(self.waiting or self.elsewhere.runs)

    def over(self, run: Run, minutes: float) -> None:
        """To be called with every run that is over."""
        self.say(run, minutes)
        self._add()

    def take_back(self) -> None:
        """Queues what somebody else has left before its end."""
        self.waiting += self.elsewhere.left(self.retry_failed, self.over)

    def _add(self):
        self.waiting += [run for run in self.following() if run.is_due(self.retry_failed)]


class Elsewhere:
    """Runs that another sweep has begun, or what a killed one has left of itself; they are waited for."""

    def __init__(self):
        self.runs = []

    def add(self, run: Run) -> None:
        self.runs.append((run, time.monotonic()))
        if run.is_locked():
            host, sweep, command = run.holder or ("?", "?", "?")
            whose = "left by a sweep that is gone" if run.is_left_over else f"of another sweep, process {sweep}"
            print(in_one_line(f"{run.name}: waiting for process {command} on {host}, {whose}"), flush=True)

    def without_begun(self, runs: list[Run]) -> list[Run]:
        """``runs`` without those that somebody else is at; these are waited for."""
        begun = [run for run in runs if run.state[0] == "running" and run.is_locked()]
        for run in begun:
            self.add(run)
        return [run for run in runs if run not in begun]

    def count_left_over(self) -> int:
        return sum(run.is_left_over for run, _ in self.runs)

    def left(self, retry_failed: bool, say) -> list[Run]:
        """Those that nobody runs any more and that are not over; ``say`` is called with the others of these, and their minutes."""
        free = [pair for pair in self.runs if not _is_locked(pair[0])]
        self.runs = [pair for pair in self.runs if pair not in free]
        due = [run for run, _ in free if run.is_due(retry_failed)]
        for run, since in free:
            if run not in due:
                say(run, (time.monotonic() - since) / 60)
        return due


def _is_locked(run):
    """Whether somebody runs it. A folder that was damaged in the meantime is waited for no longer."""
    with contextlib.suppress(InputError):
        return run.is_locked()
    return False


def perform(run: Run, retry_failed: bool) -> None:
    """Does one run and waits for it; whatever ends this process ends the run's commands."""
    under_way = begin(run, retry_failed, {})
    if not under_way:
        return
    try:
        while not under_way.poll():
            time.sleep(_POLL_SECONDS)
    except BaseException:
        under_way.terminate()
        under_way.end()
        raise


@contextlib.contextmanager
def interrupts():
    """Yields a list that is empty until Ctrl-C, SIGTERM or SIGHUP arrive, which so end nothing by themselves.

    What is ignored already, as SIGHUP under nohup, stays ignored.
    """
    received = []
    heeded = [n for n in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP) if signal.getsignal(n) != signal.SIG_IGN]
    before = {number: signal.signal(number, lambda number, frame: received.append(number)) for number in heeded}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def devices() -> list[str]:
    """The GPUs that may be used, as CUDA_VISIBLE_DEVICES names them."""
    if "CUDA_VISIBLE_DEVICES" in os.environ:
        return [name for name in os.environ["CUDA_VISIBLE_DEVICES"].split(",") if name]
    if not shutil.which("nvidia-smi"):
        return []
    listed = subprocess.run(
        ["nvidia-smi", "--query-gpu=index", "--format=csv,noheader"], capture_output=True, text=True
    )
    return listed.stdout.split() if listed.returncode == 0 else []

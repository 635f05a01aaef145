"""Display of a running sweep: a line for each event and, on a terminal, a live table below the lines."""

import contextlib
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

from ...errors import InputError, in_one_line, printable
from .failures import last_lines
from .local import Watcher
from .progress import Progress
from .run import Run
from .table import Row, duration, lines_of, make_row, shortened, summary

_SECONDS = 1.0  # between two readings of the files
_ERASE_BELOW = "\x1b[J"


class Display(Watcher):
    """Prints the events of a sweep. On a terminal, it redraws a table below the last line once a second.

    Args:
        writing: context manager for writing to standard output, which handles write errors.
        jobs: number of runs at a time.
        further: function that returns how many runs will still be added by choices.
    """

    def __init__(self, writing: Callable, jobs: int, further: Callable[[], int]):
        self.writing, self.jobs, self.further = writing, jobs, further
        self.is_live = sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb"
        self._progress: dict[str, Progress] = {}
        self._runs: list[Run] = []
        self._rows: dict[str, Row] = {}  # of finished runs
        self._followed: dict[str, tuple[Run, bool, float]] = {}  # run, whether it is resumed, and the time of its start
        self._announced: set[str] = set()
        self._drawn, self._next = 0, 0.0

    def add(self, runs: list[Run]) -> None:
        """Add runs to the table. Validations that are already in the log of a run are not printed."""
        self._runs += runs
        for run in runs:
            self._progress[run.name] = Progress(run.steps[0].log)
            self._progress[run.name].read(only_last=True)

    def say(self, text: object) -> None:
        """Print a message above the table. Bytes that are not UTF-8 are escaped."""
        with self.writing():
            print(f"{self._erasure()}{printable(text)}", flush=True)

    def follow(self, run: Run, is_resumed: bool) -> None:
        self._followed[run.name] = run, is_resumed, time.monotonic()
        self._announced.discard(run.name)
        self._next = 0.0

    def look(self) -> None:
        if time.monotonic() < self._next:
            return
        begin = time.monotonic()
        for run, *_ in list(self._followed.values()):
            self._report(run)
        if self.is_live:
            self._draw()
        # On a slow file system, reading takes at most a tenth of the time.
        self._next = begin + max(_SECONDS, 10 * (time.monotonic() - begin))

    def end(self, run: Run, minutes: float, heading: str, result: str) -> None:
        """Print the end of a run, with the last lines of its log if it has failed."""
        self._report(run)
        self._followed.pop(run.name, None)
        self._rows[run.name] = make_row(run, self._progress[run.name], minutes)
        lines = [f"{heading} {run.name}: {run.describe()} ({minutes:.1f} min){result}"]
        self.say("\n".join([*lines, *(f"    {line}" for line in last_lines(run.failed_log))]))

    def close(self) -> None:
        """Remove the live table."""
        if self._drawn:
            with self.writing():
                print(self._erasure(), end="", flush=True)
        self.is_live = False

    def last_rows(self, minutes: dict[str, float]) -> list[Row]:
        """Return the rows of all runs at the end of the sweep. ``minutes`` maps the name of each run that has ended to its duration."""
        return [
            replace(make_row(run, self._progress[run.name], test_lock=True), minutes=minutes.get(run.name), left=None)
            for run in self._runs
        ]

    def _row(self, run):
        _, _, since = self._followed.get(run.name, (None, None, None))
        progress = self._progress[run.name]
        if since is None:
            progress.read()
        return make_row(run, progress, None if since is None else (time.monotonic() - since) / 60)

    def _report(self, run):
        """Print the new events of a followed run: its start, and validations."""
        if run.name not in self._followed:
            return
        _, is_resumed, _ = self._followed[run.name]
        word, *step = run.state
        if run.name not in self._announced and word in ("running", "done", "failed"):
            self._announced.add(run.name)
            log = next((each.log for each in run.steps if [each.name] == step[:1]), run.steps[0].log)
            self.say(f"{run.name}: {'resumed' if is_resumed else 'started'}, log {log}")
        progress = self._progress[run.name]
        for record in progress.read():
            values = [f"valid {name} {record.values[key]:.4g}" for key, name in _SCORES if key in record.values]
            of = f" of {progress.total}" if progress.total else ""
            left = [f"about {duration(progress.seconds_left)} left"] if progress.seconds_left else []
            self.say(in_one_line(f"{run.name}: {', '.join([f'update {record.updates}{of}', *values, *left])}"))

    def _draw(self):
        """Redraw the table. The table is limited to the height of the terminal, and its lines to the width."""
        width, height = shutil.get_terminal_size()
        rows = [self._rows.get(run.name) or self._row(run) for run in self._runs]
        shown = shortened(rows, max(1, height - 4))
        lines = [*lines_of(shown, failures=False), summary(rows, self.jobs, self.further())]
        if len(shown) < len(rows):
            lines.insert(-1, f"... and {len(rows) - len(shown)} more")
        text = "\n".join(printable(line)[: max(1, width - 1)] for line in lines)
        with self.writing():
            print(f"{self._erasure()}{text}", flush=True)
        self._drawn = len(lines)

    def _erasure(self):
        """Return the control characters that erase the table. The next call of ``look`` draws the table again."""
        if not self._drawn:
            return ""
        lines, self._drawn, self._next = self._drawn, 0, 0.0
        return f"\x1b[{lines}A\r{_ERASE_BELOW}"


_SCORES = (("loss", "loss"), ("bleu", "BLEU"))


@contextlib.contextmanager
def collecting(errors: list[InputError], say: Callable) -> Iterator[None]:
    """Print an InputError that is raised in the ``with`` block, and append it to ``errors``."""
    try:
        yield
    except InputError as error:
        say(error)
        errors.append(error)

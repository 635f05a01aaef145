"""Table of a sweep's runs: state, updates, losses, BLEU, and the remaining time of each run and of the sweep."""

import os
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ...errors import InputError, in_one_line, printable, whole_number
from ...files import read_text, why
from .failures import last_lines
from .progress import Progress
from .run import Run
from .steps import commands_in, make_steps, without_variables

_MOST = 1 << 20  # largest size of the files command and further, in bytes
FURTHER = "further"
_ORDER = ("running", "failed", "damaged", "interrupted", "waiting", "done")


@dataclass(frozen=True)
class Row:
    """A run in the table. Numbers that are not known are None.

    Attributes:
        name: name of the run.
        state: state of the run, such as "running: train".
        minutes: duration so far.
        progress: progress of the run's first command, the training.
        left: estimated seconds until the run ends.
        log: log of the command that has failed, or None.
        after: for a finished run, the seconds that the commands after the training took.
    """

    name: str
    state: str
    minutes: float | None
    progress: Progress
    left: float | None
    log: Path | None = None
    after: float | None = None

    @property
    def word(self) -> str:
        return re.split(r"\W", self.state, maxsplit=1)[0]


def make_row(run: Run, progress: Progress, minutes: float | None = None, test_lock: bool = False) -> Row:
    """Return the row of a run. If ``test_lock`` is False, only files are read.

    Args:
        run: the run.
        progress: progress of the run's training. Its method ``read`` must have been called before.
        minutes: duration of the run so far. If None, the duration is computed from the log.
        test_lock: test the lock of the run to find out whether the run is running. The lock is more reliable than a search for the process.
    """
    state = in_one_line(run.describe(None if test_lock else run.seems_running()))
    word = run.state[0]
    left = progress.seconds_left if word == "running" else None
    changed = _changed(run.folder / "state")
    if word == "running" and progress.updates is None and run.steps and state == f"running: {run.steps[0].name}":
        state += " (starting)"  # fairseq logs the first update after --log-interval updates
        if minutes is None and changed is not None:
            minutes = (time.time() - changed) / 60
    after = None
    if word == "done" and progress.is_trained:
        trained = _changed(progress.log)
        after = None if changed is None or trained is None else max(0.0, changed - trained)
    if minutes is None and progress.wall and word != "waiting":
        minutes = (progress.wall + (after or 0.0)) / 60
    return Row(run.name, state, minutes, progress, left, run.failed_log, after)


def total_left(rows: Sequence[Row], jobs: int, further: int = 0) -> float | None:
    """Return the estimated seconds until the end of all runs; None if no estimate is possible.

    A run that has not started is assumed to take the average time of the other runs.

    Args:
        rows: all runs.
        jobs: number of runs at a time.
        further: number of runs that choices will still add.
    """
    after = _mean([row.after for row in rows]) or 0.0
    each = _mean([_whole(row, after) for row in rows])
    running = [row.left for row in rows if row.word == "running"]
    left = [(each if seconds is None else seconds + after) for seconds in running]
    left += [each] * (further + sum(row.word in ("waiting", "interrupted") for row in rows))
    known = [seconds for seconds in left if seconds is not None]
    if not left:
        return 0.0
    if not known or len(known) < len(left):
        return None
    return max(sum(known) / max(1, jobs), *known[: len(running)], 0.0)


def lines_of(rows: Sequence[Row], with_minutes: bool = False, failures: bool = True) -> list[str]:
    """Return the lines of the table. Columns without a value are left out.

    Args:
        rows: the runs.
        with_minutes: whether to keep the column of minutes even if it is empty.
        failures: whether a failed run is followed by the last lines of its log.
    """
    columns = {
        "run": [in_one_line(row.name) for row in rows],
        "minutes": ["" if row.minutes is None else f"{row.minutes:.1f}" for row in rows],
        "update": [_updates(row.progress) for row in rows],
        "train loss": [_digits(row.progress.loss) for row in rows],
        "valid loss": [_digits(row.progress.value("loss")) for row in rows],
        "valid BLEU": [_digits(row.progress.value("bleu")) for row in rows],
        "left": [duration(row.left) if row.left else "" for row in rows],
        "state": [row.state for row in rows],
    }
    kept = ("run", "state", *["minutes"] * with_minutes)
    columns = {name: cells for name, cells in columns.items() if name in kept or any(cells)}
    table = [[name, *cells] for name, cells in columns.items()]
    widths = [max(map(len, cells)) for cells in table]
    lines = []
    for number, cells in enumerate(zip(*table)):
        padded = [cell.rjust(width) for cell, width in zip(cells, widths)]
        lines.append("  ".join([cells[0].ljust(widths[0]), *padded[1:-1], cells[-1]]))
        if failures and number and rows[number - 1].word == "failed":
            lines += [f"    {printable(line)}" for line in last_lines(rows[number - 1].log)]
    return lines


def summary(rows: Sequence[Row], jobs: int, further: int = 0) -> str:
    """Return one line with the number of runs in each state, and the remaining time of the sweep."""
    words = [row.word for row in rows]
    counts = ", ".join(f"{words.count(word)} {word}" for word in reversed(_ORDER) if word in words)
    runs = f"{len(rows)} {'run' if len(rows) == 1 else 'runs'}: {counts}"
    if further:
        runs += f"; {further} more after the choices"
    left = total_left(rows, jobs, further)
    return f"{runs}; about {duration(left)} left" if left else runs


def shortened(rows: Sequence[Row], most: int) -> list[Row]:
    """Return at most ``most`` rows, in their original order. Finished runs are omitted first, then waiting runs."""
    ranked = sorted(range(len(rows)), key=lambda i: _ORDER.index(rows[i].word) if rows[i].word in _ORDER else 0)
    return [rows[i] for i in sorted(ranked[:most])]


def duration(seconds: float) -> str:
    """Return a time in words: 45 s, 12 min, 3 h 05 min, 2 d 4 h."""
    minutes = round(seconds / 60)
    if seconds < 90:
        return f"{seconds:.0f} s"
    if minutes < 60:
        return f"{minutes} min"
    return (
        f"{minutes // 60} h {minutes % 60:02} min"
        if minutes < 48 * 60
        else f"{minutes // 1440} d {minutes % 1440 // 60} h"
    )


def status(folder: str) -> str:
    """Return the table of a sweep's folder. Only reads files.

    Raises:
        InputError: the folder does not exist, or contains no run.
    """
    try:
        names = sorted(os.listdir(folder), key=_by_number)
    except OSError as error:
        raise InputError(f"--status {folder}: {why(error)}") from error
    rows = []
    for path in (Path(os.path.abspath(folder)) / name for name in names):
        if os.path.lexists(path / "state") or os.path.lexists(path / "command"):
            run = _run_of(path)
            log = run.steps[0].log if run.steps else path / "train.log"
            progress = Progress(log)
            progress.read(only_last=True)
            rows.append(make_row(run, progress))
    if not rows:
        raise InputError(f"--status {folder}: contains no run of a sweep; give the folder of a sweep (--out DIR)")
    jobs = sum(row.word == "running" for row in rows)
    further = _further(Path(folder) / FURTHER) if jobs else 0
    return "\n".join([*lines_of(rows), summary(rows, jobs, further)])


def _run_of(folder):
    """Return the run in a folder, with the steps in the file ``command``. If the file cannot be read, the run has no steps."""
    try:
        commands = [without_variables(words) for words in commands_in(read_text(folder / "command", _MOST))]
    except OSError:
        commands = []
    return Run(folder.name, folder, {}, make_steps([words for words in commands if words], folder))


def _further(path):
    try:
        return whole_number(read_text(path, _MOST).strip()) or 0
    except OSError:
        return 0


def _whole(row, after):
    """Return the estimated total seconds of a run, or None. ``after`` is the time of the commands after the training."""
    progress = row.progress
    if row.word == "done" and row.minutes is not None:
        return row.minutes * 60
    if row.word == "running" and progress.total and progress.seconds_per_update is not None:
        return progress.total * progress.seconds_per_update + after
    return None


def _mean(values):
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def _changed(path):
    """Return the time of a file's last change; None if there is no file. A time in the future counts as now."""
    try:
        return min(os.stat(path).st_mtime, time.time())
    except OSError:
        return None


def _updates(progress):
    if progress.updates is None:
        return ""
    return f"{progress.updates}/{progress.total}" if progress.total else str(progress.updates)


def _digits(value):
    return "" if value is None else f"{value:.4g}"


def _by_number(name):
    """Return a sort key that compares numbers in names by value: lr2e-3-10 follows lr2e-3-9."""
    return [(part.isdecimal(), int(part) if part.isdecimal() else 0, part) for part in re.split(r"([0-9]{1,15})", name)]

"""Read the progress of a training from its log while fairseq writes it: updates, losses, BLEU and the time left."""

import os
import re
from pathlib import Path

from ...files import open_regular
from ..report.log_reader import Record, lines_of_log, read_record

_HEAD, _TAIL = 1 << 16, 1 << 18  # bytes of a long log that are read at first
_LONG = 1 << 20
_LAST_LINES = 10
_RECORD = re.compile(r'"epoch": |\| epoch ')
_VALIDATION = re.compile(r"(?<!\btrain)_num_updates\"|\| valid on '")
_LIMITS = re.compile(r"'(max_update|max_epoch)': (\d{1,15})\b")
_RESTORED = re.compile(r"Loaded checkpoint .* \(epoch \d+ @ (\d{1,15}) updates\)")


class Progress:
    """Progress of one training.

    Each call of ``read`` reads the bytes that were appended to the log since the previous call.

    Args:
        log: the log of the training. It may not exist yet, and may be damaged.

    Attributes:
        updates: number of updates; None before the first record.
        loss: training loss of the last record that was written during an epoch, not at its end; None before the first such record.
        validation: the last validation, or None.
        is_trained: whether the training has ended normally.
        wall: seconds from the start of the training process to its last record.
    """

    def __init__(self, log: Path):
        self.log = log
        self._forget()

    def _forget(self):
        self._offset, self._rest, self._limits = 0, b"", {}
        self._first: tuple[float, int] | None = (
            None  # seconds and updates at the start of the process, or at its first record
        )
        self._epochs = 0.0
        self.updates: int | None = None
        self.loss: float | None = None
        self.validation: Record | None = None
        self.is_trained, self.wall = False, 0.0

    def read(self, only_last: bool = False) -> list[Record]:
        """Read the new lines of the log, and return the new validations. If the log cannot be read, there are no new lines.

        Args:
            only_last: skip all records except the last ones, because reading thousands of records takes seconds. If a log is long, the
                first call always skips records, and reads only the beginning and the end of the log.
        """
        try:
            with open_regular(self.log) as file:
                size = os.fstat(file.fileno()).st_size
                if size < self._offset:  # a step that starts again empties its log
                    self._forget()
                if self._offset == 0 and size > _LONG:
                    self._read_lines(file.read(_HEAD), skip=True)
                    file.seek(size - _TAIL)
                    self._rest = b""
                    found = self._read_lines(file.read(), skip=True)
                else:
                    file.seek(self._offset)
                    found = self._read_lines(file.read(size - self._offset), skip=only_last)
                self._offset = file.tell()
                return found
        except OSError:
            return []

    @property
    def total(self) -> int | None:
        """Number of updates at the end of the training; None if unknown. If --max-epoch ends the training, the number is an estimate."""
        limits = [self._limits["max_update"]] if self._limits.get("max_update") else []
        if self._limits.get("max_epoch") and self.updates and 1e-6 < self._epochs < 1e9:
            limits.append(round(self.updates / self._epochs * self._limits["max_epoch"]))
        return min(limits, default=None)

    @property
    def seconds_per_update(self) -> float | None:
        """Seconds per update of the current process, including validation and saving; None if fewer than two records are known."""
        if self._first is None or self.updates is None or self.updates <= self._first[1]:
            return None
        return max(0.0, self.wall - self._first[0]) / (self.updates - self._first[1])

    @property
    def seconds_left(self) -> float | None:
        """Estimated seconds until the end of the training; None if no estimate is possible."""
        if self.is_trained:
            return 0.0
        if self.total is None or self.updates is None or self.seconds_per_update is None:
            return None
        return max(0, self.total - self.updates) * self.seconds_per_update

    def value(self, name: str) -> float | None:
        """Return a score of the last validation by name, such as "bleu"; None if there is no such score."""
        return self.validation.values.get(name) if self.validation else None

    def _read_lines(self, text, skip):
        """Parse the complete lines of ``text``. With ``skip``, use only the last validation and the records in the last lines."""
        whole = self._rest + text
        end = max(whole.rfind(b"\n"), whole.rfind(b"\r")) + 1
        self._rest = whole[end:][-_LONG:]
        lines = lines_of_log(whole[:end].decode("utf-8", "replace"))
        if skip:
            last = next((i for i in reversed(range(len(lines))) if _VALIDATION.search(lines[i])), 0)
            kept = {last, *range(len(lines) - _LAST_LINES, len(lines))}
            lines = [line for i, line in enumerate(lines) if i in kept or not _RECORD.search(line)]
        found = []
        for line in lines:
            if "'common': " in line:
                self._limits = {name: int(number) for name, number in _LIMITS.findall(line)}
                self._first, self.is_trained, self.wall = None, False, 0.0
            elif "No existing checkpoint found" in line:
                self._first = (0.0, 0)
            elif match := _RESTORED.search(line):
                self._first = (0.0, int(match[1]))
            elif "done training in" in line:
                self.is_trained = True
            elif record := read_record(line):
                self._add(record)
                found += [record] * (record.kind == "valid")
        return found

    def _add(self, record):
        wall = record.values.get("wall")
        self.updates = record.updates
        if record.kind == "valid":
            self.validation = record
            return
        if record.kind == "inner":
            self.loss = record.values.get("loss", self.loss)
        self._epochs = record.values.get("update", float(record.epoch) if record.kind == "epoch" else self._epochs)
        if wall is None:
            return
        if wall < self.wall:  # another process
            self._first = None
        self.wall = wall
        self._first = self._first or (wall, record.updates)

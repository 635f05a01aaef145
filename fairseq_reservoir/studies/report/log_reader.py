"""Read fairseq-train's logs, JSON or text, into records. A resumed run has several parts."""

import json
import re
from dataclasses import dataclass, field

from . import configuration

# Marks are searched one after the other. A regular expression with two ".*" would need hours for a line of a megabyte.
_CONFIGURATION = ("{'_name': ", "'common': ", "}")
_PROGRAM = re.compile(r"\| fairseq_cli\.(\w+) \| ")
_RESTORED = re.compile(r" \(epoch \d+ @ (\d+) updates\)")
_SIZES = re.compile(r"num\. shared model params: (\d[\d,]*) \(num\. trained: (\d[\d,]*)\)")
_TOTAL = re.compile(r"^total\s+[\d,]+\s+[\d,]+\s+(\d[\d,]{0,20}\.\d{1,9})$")
_BACKWARD = re.compile(r"^backward (\d{1,20}(?:\.\d{1,9})?) MFLOP/token")
_JSON = ('{"epoch": ', "}")
_SUMMARY = re.compile(r"epoch (\d+) \| (?:valid on '([^']+)' subset \| )?")
_INNER = re.compile(r"epoch (\d+):")
_INNER_UPDATES, _SUMMARY_UPDATES = re.compile(r"\bnum_updates=\d"), re.compile(r"\bnum_updates \d")
_PAIR = re.compile(r"\b(\w+)=([^,\s\]]+)")
# Numbers of epochs, updates and parameters are shorter. Python refuses to read thousands of digits.
_DIGITS = 15
# Values of these keys are left out if they are not a possible time or token count.
_AMOUNTS = ("wall", "train_wall", "wpb")
_OLD_SUBSET = re.compile(r"\| (\w+) \| epoch \d+ \|")


@dataclass(frozen=True)
class Record:
    """One line of numbers. ``kind`` is "inner" (mid-epoch), "epoch" (end of an epoch) or "valid" (of ``subset``)."""

    kind: str
    epoch: int
    updates: int
    values: dict[str, float]
    subset: str = ""


@dataclass
class Part:
    """The part of one process. ``start`` is the update at its start; None if the log does not have it."""

    start: int | None = None
    records: list[Record] = field(default_factory=list)
    configuration: dict[str, object] = field(default_factory=dict)
    done: bool = False
    is_spoiled: bool = False  # its configuration cannot be read

    @property
    def wall(self) -> float:
        """Seconds from its start to its last record, including validation and saving."""
        return max((record.values["wall"] for record in self.records if "wall" in record.values), default=0.0)


@dataclass
class Log:
    """The content of one log file.

    Attributes:
        parts: one per process.
        is_output: whether this is the output of the process. A --log-file has only records, and lacks the end of training.
        parameters: number of parameters; None if the log does not have it.
        trained: trained parameters of the model; None if the log does not have it.
        mflop: MFLOP per token from the slot table, forward and backward; None without it.
        table: whether there is a slot table of any version.
    """

    parts: list[Part]
    is_output: bool
    parameters: int | None = None
    trained: int | None = None
    mflop: float | None = None
    table: bool = False

    @property
    def configuration(self) -> dict[str, object]:
        """The configuration of the last part, because a run may be resumed with a larger --max-update."""
        return next((part.configuration for part in reversed(self.parts) if part.configuration), {})

    @property
    def done(self) -> bool:
        return self.parts[-1].done

    @property
    def is_spoiled(self) -> bool:
        """Whether there is a configuration, but none can be read."""
        return not self.configuration and any(part.is_spoiled for part in self.parts)


def looks_like_training(text: str) -> bool:
    """Return whether a file begins like a training log. fairseq's other commands print their configuration, too."""
    programs = set(_PROGRAM.findall(text))
    if programs and not programs & {"train", "hydra_train"}:
        return False
    return any(_span(line, *marks) for line in lines_of_log(text) for marks in (_CONFIGURATION, _JSON)) or bool(
        re.search(r"\bepoch \d+( \||:)", text)
    )


def read_log(text: str) -> Log:
    """Read a log. A part begins where fairseq prints its configuration, or where updates or the wall clock decrease."""
    log, forward = Log([Part()], is_output=False), 0.0
    for line in lines_of_log(text):
        if printed := _span(line, *_CONFIGURATION):
            log.is_output = True
            if log.parts[-1].records or log.parts[-1].configuration:
                log.parts.append(Part())
            try:
                log.parts[-1].configuration = configuration.flatten(configuration.parse(printed))
            except ValueError:
                log.parts[-1].is_spoiled = True
        elif record := read_record(line):
            if _is_earlier(log.parts[-1].records, record):
                log.parts.append(Part())
            if not log.parts[-1].records or log.parts[-1].records[-1] != record:  # a progress bar repeats records
                log.parts[-1].records.append(record)
        elif "Loaded checkpoint " in line and (match := _RESTORED.search(line)):
            log.parts[-1].start = _whole(match[1])
        elif "No existing checkpoint found" in line:
            log.parts[-1].start = 0
        elif match := _SIZES.search(line):
            log.parameters, log.trained = (_whole(number.replace(",", "")) for number in match.groups())
        elif match := _TOTAL.search(line):
            log.table, forward = True, float(match[1].replace(",", ""))
        elif match := _BACKWARD.search(line):
            log.mflop = forward + float(match[1])
        elif "done training in" in line:
            log.is_output = log.parts[-1].done = True
    # A process that ended before it loaded its checkpoint has no effect.
    log.parts = [part for part in log.parts if part.start is not None or part.records or part.done] or log.parts[-1:]
    return log


def lines_of_log(text: str) -> list[str]:
    """Split a log into lines. A carriage return also ends a line, because a progress bar writes one before each of its states."""
    return text.replace("\r\n", "\n").replace("\r", "\n").removesuffix("\n").split("\n")


def read_record(line: str) -> Record | None:
    """Return the record in a line; None without one that has a number of updates."""
    if printed := _span(line, *_JSON):
        try:
            return _record(json.loads(printed))
        # The process was killed in the middle of the line, or the line is of another program.
        except (ValueError, TypeError, OverflowError, RecursionError):
            return None
    if (match := _INNER.search(line)) and _INNER_UPDATES.search(line, match.end()):
        return _make("inner", _whole(match[1]), dict(_PAIR.findall(line)))
    if (match := _SUMMARY.search(line)) and _SUMMARY_UPDATES.search(line, match.end()):
        values = dict(pair.split(" ", 1) for pair in line[match.end() :].split(" | ") if " " in pair)
        old = _OLD_SUBSET.search(line)
        subset = match[2] or (old[1] if old and old[1] != "train" else "")
        return _make("valid" if subset else "epoch", _whole(match[1]), values, subset)
    return None


def _span(line, *marks):
    """Return the part of a line from the first mark to the last occurrence of the last mark; None unless all occur in that order."""
    at = begin = line.find(marks[0])
    for mark in marks[1:-1]:
        at = line.find(mark, at) if at >= 0 else at
    end = line.rfind(marks[-1], at) if at >= 0 else -1
    return line[begin : end + len(marks[-1])] if end >= 0 else None


def _whole(digits):
    """Return the number of a text of digits; 0 if it is larger than any count of fairseq."""
    return int(digits) if len(digits) <= _DIGITS else 0


def _record(values):
    epoch = int(values.pop("epoch") or 0)
    if "update" in values:
        return _make("inner", epoch, values)
    subset = next((key.removesuffix("_num_updates") for key in values if key.endswith("_num_updates")), None)
    if subset is None:
        return None
    values = {key.removeprefix(f"{subset}_"): value for key, value in values.items()}
    return _make("epoch", epoch, values) if subset == "train" else _make("valid", epoch, values, subset)


def _make(kind, epoch, values, subset=""):
    numbers = {}
    for key, value in values.items():
        try:
            number = float(value)
        except (TypeError, ValueError):  # "N/A" or null
            continue
        if key not in _AMOUNTS or 0 <= number < 10**_DIGITS:
            numbers[key] = number
    updates = numbers.pop("num_updates", None)
    return (
        None
        if updates is None or not 0 <= updates < 10**_DIGITS
        else Record(kind, epoch, int(updates), numbers, subset)
    )


def _is_earlier(records, new):
    same = [record for record in records[-50:] if record.kind == new.kind and record.subset == new.subset]
    clock = [record.values["wall"] for record in records[-50:] if "wall" in record.values]
    return bool(same and new.updates < same[-1].updates or clock and new.values.get("wall", clock[-1]) < clock[-1])

"""Read the logs of fairseq-train, JSON or text, into records. Each process writes one part of a log, so a resumed run has several parts."""

import json
import re
from dataclasses import dataclass, field

from . import configuration

# Texts in the line of a configuration, see _span. A regular expression with two ".*" would need hours for a line of a megabyte.
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
# Largest number of digits of epochs, updates and parameters. Python refuses to convert thousands of digits.
_DIGITS = 15
# Values of these keys are dropped if they are negative, or too large for a time or a number of tokens.
_AMOUNTS = ("wall", "train_wall", "wpb")
_OLD_SUBSET = re.compile(r"\| (\w+) \| epoch \d+ \|")


@dataclass(frozen=True)
class Record:
    """The numbers in one line of a log.

    Attributes:
        kind: "inner" (within an epoch), "epoch" (at the end of an epoch) or "valid" (a validation).
        epoch: the epoch.
        updates: number of updates so far.
        values: the remaining numbers of the line, by name.
        subset: the validation subset of a "valid" record; "" for other records.
    """

    kind: str
    epoch: int
    updates: int
    values: dict[str, float]
    subset: str = ""


@dataclass
class Part:
    """The part of a log that one process wrote.

    Attributes:
        start: number of updates at the start of the process; None if it was not logged.
        records: the records of this part.
        configuration: the flat configuration of the process; {} if it was not logged or cannot be read.
        done: whether the process ended the training normally.
        is_spoiled: whether the part has a configuration that cannot be read.
    """

    start: int | None = None
    records: list[Record] = field(default_factory=list)
    configuration: dict[str, object] = field(default_factory=dict)
    done: bool = False
    is_spoiled: bool = False

    @property
    def wall(self) -> float:
        """Seconds from the start of the process to its last record, including validation and saving."""
        return max((record.values["wall"] for record in self.records if "wall" in record.values), default=0.0)


@dataclass
class Log:
    """The content of one log file.

    Attributes:
        parts: one part per process.
        is_output: whether the log is the output of a process. A file written by --log-file contains only records, and does not show that
            training ended.
        parameters: number of parameters; None if it was not logged.
        trained: number of trained parameters; None if it was not logged.
        mflop: MFLOP per token, forward and backward, from the slot table (the table of layers that the plugin prints); None if it was not
            logged.
        table: whether the log has a slot table. A slot table of an old version has no line for the backward pass.
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
        """Whether the log has at least one configuration, but no readable one."""
        return not self.configuration and any(part.is_spoiled for part in self.parts)


def looks_like_training(text: str) -> bool:
    """Return whether ``text``, the beginning of a file, is from the log of a training and not of another fairseq command."""
    programs = set(_PROGRAM.findall(text))
    if programs and not programs & {"train", "hydra_train"}:
        return False
    return any(_span(line, *marks) for line in lines_of_log(text) for marks in (_CONFIGURATION, _JSON)) or bool(
        re.search(r"\bepoch \d+( \||:)", text)
    )


def read_log(text: str) -> Log:
    """Read a log. A new part begins where fairseq prints its configuration, or where the updates or the wall clock decrease."""
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
    # Drop the parts of processes that ended before they loaded a checkpoint, because they did not train.
    log.parts = [part for part in log.parts if part.start is not None or part.records or part.done] or log.parts[-1:]
    return log


def lines_of_log(text: str) -> list[str]:
    """Split a log into lines. A carriage return also ends a line, because progress bars write a carriage return before they redraw."""
    return text.replace("\r\n", "\n").replace("\r", "\n").removesuffix("\n").split("\n")


def read_record(line: str) -> Record | None:
    """Return the record in a line; None if the line has no record with a number of updates."""
    if printed := _span(line, *_JSON):
        try:
            return _record(json.loads(printed))
        # The process was killed in the middle of the line, or another program wrote the line.
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
    """Return the text from the first mark to the last occurrence of the last mark. Return None if a mark is missing or in another order."""
    at = begin = line.find(marks[0])
    for mark in marks[1:-1]:
        at = line.find(mark, at) if at >= 0 else at
    end = line.rfind(marks[-1], at) if at >= 0 else -1
    return line[begin : end + len(marks[-1])] if end >= 0 else None


def _whole(digits):
    """Convert digits to an integer; return 0 for more than ``_DIGITS`` digits, which fairseq never logs."""
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
    """Return whether a record has fewer updates or less wall time than earlier records. Such a record is from a new process."""
    same = [record for record in records[-50:] if record.kind == new.kind and record.subset == new.subset]
    clock = [record.values["wall"] for record in records[-50:] if "wall" in record.values]
    return bool(same and new.updates < same[-1].updates or clock and new.values.get("wall", clock[-1]) < clock[-1])

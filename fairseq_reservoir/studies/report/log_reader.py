"""fairseq-train's logs, JSON or text, read into records; the parts of a resumed run stay apart."""

import json
import re
from dataclasses import dataclass, field

from . import configuration

# Patterns are looked for one after the other in what is left of a line: one with two ".*" takes a line of a megabyte for hours.
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
# No epoch, update or size of a model has more digits; Python refuses to read thousands of them.
_DIGITS = 15
# Of these, what is no time and no count of words is left out.
_AMOUNTS = ("wall", "train_wall", "wpb")
_OLD_SUBSET = re.compile(r"\| (\w+) \| epoch \d+ \|")


@dataclass(frozen=True)
class Record:
    """One line of numbers. ``kind`` is "inner" (mid-epoch), "epoch" (end of an epoch) or "valid", then of ``subset``."""

    kind: str
    epoch: int
    updates: int
    values: dict[str, float]
    subset: str = ""


@dataclass
class Part:
    """One process: from its start, at update ``start`` (None where the log does not say), to its end or interruption."""

    start: int | None = None
    records: list[Record] = field(default_factory=list)
    configuration: dict[str, object] = field(default_factory=dict)
    done: bool = False
    is_spoiled: bool = False  # its configuration cannot be read

    @property
    def wall(self) -> float:
        """Seconds from its start to its last record, validation and saving among them."""
        return max((record.values["wall"] for record in self.records if "wall" in record.values), default=0.0)


@dataclass
class Log:
    """The content of one log file.

    ``told`` is whether it is the output of the process; a --log-file holds only records, and does not say whether training ended.
    ``parameters``, ``trained`` and ``mflop`` (MFLOP per token of the slot table, forward and backward) are None where it does not
    say; ``table`` is whether there is a slot table, of whatever version.
    """

    parts: list[Part]
    told: bool
    parameters: int | None = None
    trained: int | None = None
    mflop: float | None = None
    table: bool = False

    @property
    def configuration(self) -> dict[str, object]:
        """The last part's, flattened: a run may be resumed with a larger --max-update."""
        return next((part.configuration for part in reversed(self.parts) if part.configuration), {})

    @property
    def done(self) -> bool:
        return self.parts[-1].done

    @property
    def is_spoiled(self) -> bool:
        """Whether a configuration is there and none can be read."""
        return not self.configuration and any(part.is_spoiled for part in self.parts)


def looks_like_training(text: str) -> bool:
    """Whether the beginning of a file is that of a training log: fairseq's other commands print their configuration, too."""
    programs = set(_PROGRAM.findall(text))
    if programs and not programs & {"train", "hydra_train"}:
        return False
    return any(_span(line, *marks) for line in lines_of_log(text) for marks in (_CONFIGURATION, _JSON)) or bool(
        re.search(r"\bepoch \d+( \||:)", text)
    )


def read_log(text: str) -> Log:
    """All parts of a log; a part begins where fairseq prints its configuration, or where updates or the wall clock go back."""
    log, forward = Log([Part()], told=False), 0.0
    for line in lines_of_log(text):
        if printed := _span(line, *_CONFIGURATION):
            log.told = True
            if log.parts[-1].records or log.parts[-1].configuration:
                log.parts.append(Part())
            try:
                log.parts[-1].configuration = configuration.flatten(configuration.parse(printed))
            except ValueError:
                log.parts[-1].is_spoiled = True
        elif record := read_record(line):
            if _goes_back(log.parts[-1].records, record):
                log.parts.append(Part())
            if not log.parts[-1].records or log.parts[-1].records[-1] != record:  # a bar repeats itself
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
            log.told = log.parts[-1].done = True
    # A process that ended before it had loaded its checkpoint changed nothing.
    log.parts = [part for part in log.parts if part.start is not None or part.records or part.done] or log.parts[-1:]
    return log


def lines_of_log(text: str) -> list[str]:
    """The lines of a log. A carriage return ends a line as well, because a progress bar writes one before each of its states."""
    return text.replace("\r\n", "\n").replace("\r", "\n").removesuffix("\n").split("\n")


def read_record(line: str) -> Record | None:
    """The record in a line, if there is one with a number of updates."""
    if printed := _span(line, *_JSON):
        try:
            return _record(json.loads(printed))
        # The process was killed in the middle of the line, or it is none of fairseq's.
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
    """The part of a line from the first of the marks to the last place of the last, if all are there in that order; else None."""
    at = begin = line.find(marks[0])
    for mark in marks[1:-1]:
        at = line.find(mark, at) if at >= 0 else at
    end = line.rfind(marks[-1], at) if at >= 0 else -1
    return line[begin : end + len(marks[-1])] if end >= 0 else None


def _whole(digits):
    """The number of a text of digits, 0 where it is none that fairseq counts to."""
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
        except (TypeError, ValueError):  # "N/A" or null: not measured
            continue
        if key not in _AMOUNTS or 0 <= number < 10**_DIGITS:
            numbers[key] = number
    updates = numbers.pop("num_updates", None)
    return (
        None
        if updates is None or not 0 <= updates < 10**_DIGITS
        else Record(kind, epoch, int(updates), numbers, subset)
    )


def _goes_back(records, new):
    same = [record for record in records[-50:] if record.kind == new.kind and record.subset == new.subset]
    clock = [record.values["wall"] for record in records[-50:] if "wall" in record.values]
    return bool(same and new.updates < same[-1].updates or clock and new.values.get("wall", clock[-1]) < clock[-1])

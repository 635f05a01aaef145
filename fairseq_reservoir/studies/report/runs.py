"""Find and read runs: folders with a training log."""

import os
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from ...errors import InputError, printable
from ...files import open_regular, read_text, regular, why
from . import run_files
from .clock import Clock, kept_records, read_clock
from .log_reader import Log, Record, looks_like_training, read_log

_SUFFIXES = (".log", ".json", ".jsonl")
_BEGINNING = 1 << 20


@dataclass
class Run:
    """One training run.

    Attributes:
        folder: folder of the run.
        log_file: log of the training.
        name: the folder's name, or its path below the common parent of all runs.
        log: content of the log.
        clock: seconds and tokens at each update.
        seed: seed from the configuration or the folder's name; None if neither has one.
        validations: records of the first validation subset.
        updates: number of updates at the last record.
        fault: why the log cannot be read; "" if it can. A run with a fault has no records.
    """

    folder: Path
    log_file: Path
    name: str
    log: Log
    clock: Clock
    seed: int | None
    validations: list[Record]
    updates: int
    fault: str = ""

    @property
    def configuration(self) -> dict[str, object]:
        return self.log.configuration

    @property
    def resumes(self) -> int:
        return len(self.log.parts) - 1

    @property
    def state(self) -> str:
        """State of the run: "finished", "interrupted" or "end not logged".

        A run that is still running is also "interrupted". The end is not logged if the log is a --log-file.

        If a step of a sweep has failed or was interrupted, the result names this step, as in "finished: generate failed with status 1". The
        step is read from the sweep's file ``state`` in the run's folder. If a script of the sweep created the run's folder, this file is in
        the parent folder.
        """
        trained = "finished" if self.log.done else "interrupted" if self.log.is_output else "end not logged"
        above = self.folder.parent
        for folder in (self.folder, *[above] * (regular(above / "command") is not None)):
            word, *step = run_files.state_of(folder) or [""]
            if word == "failed" and len(step) == 2:
                return f"{trained}: {step[0]} failed with status {step[1]}"
            if word == "running" and len(step) == 1 and trained != "interrupted":
                return f"{trained}: {step[0]} interrupted"
        return trained

    @property
    def interrupted(self) -> bool:
        return self.state.startswith("interrupted")

    @property
    def seconds(self) -> float:
        return self.clock.seconds_at(self.updates)

    @property
    def wall(self) -> float:
        return sum(part.wall for part in self.log.parts)

    @property
    def stem(self) -> str:
        """The run's name without the seed."""
        return without_seed(self.name, self.seed)

    def size_of(self, pattern: str) -> int | None:
        """Return the size in bytes of the first file in the run's folder that matches the pattern; None if no file matches."""
        sizes = (status.st_size for file in run_files.found(self.folder, pattern) if (status := regular(file)))
        return next(sizes, None)


def without_seed(name: str, seed: int | None) -> str:
    """Remove the seed from a name: for seed 1, ``dense-1``, ``dense/seed=1`` and ``dense-seed1`` become ``dense``.

    ``dense-1/4e-3`` becomes ``dense/4e-3``. If several folders in a path end in the seed, the seed is removed only from the deepest folder.
    """
    if seed is None:
        return name
    # The 1 at the end of a learning rate, such as 4e-1 or 0.1, is not a seed.
    before = r"((^|[-_,.])seed[-_=]?|^|(?<!\de)[-_,]|(?<!\d)\.)"
    folders = name.split("/")
    for i in reversed(range(len(folders))):
        short = re.sub(rf"{before}{seed}$", "", folders[i])
        if short != folders[i]:
            folders[i] = short
            break
    return "/".join(filter(None, folders)) or name


def find_runs(paths) -> list[Run]:
    """Find all runs below ``paths``, in the order of ``paths`` and then by name. A run with an unreadable log has a ``fault``.

    Raises:
        InputError: a path does not exist, contains no training log, or is itself an unreadable log; or a folder has two training logs.
    """
    logs: dict = {}  # folder -> (log, why it cannot be read)
    for path in map(Path, paths):
        if not os.path.exists(path):
            raise InputError(f"RUNS {path}: does not exist")
        is_log = regular(path) is not None
        if is_log and (fault := run_files.fault_of(path)):
            raise InputError(f"RUNS {path}: {fault}")
        whole = Path(os.path.realpath(path))
        below = [(whole.parent, whole, "")] if is_log else list(_logs_below(whole))
        if not below:
            raise InputError(
                f"RUNS {path}: neither this folder nor a folder below it has a log of fairseq-train (train.log, or any *.log or *.json)"
            )
        for folder, log, fault in below:
            first, _ = logs.setdefault(folder, (log, fault))
            if is_log and first != log:
                raise InputError(
                    f"RUNS {path}: {first} is the log of another run in the same folder; give each run its own folder"
                )
    shared = Path(os.path.commonpath(list(logs))) if len(logs) > 1 else next(iter(logs)).parent
    named = Counter(printable(folder.name) for folder in logs)
    return [_read_run(log, folder, _name(folder, shared, named), fault) for folder, (log, fault) in logs.items()]


def _name(folder, shared, named):
    """Return the folder's name if the name is unique and not just a number; otherwise, the path below the common parent."""
    name = printable(folder.name)
    is_descriptive = not re.fullmatch(r"(seed[-_=]?)?\d+", name)
    return name if named[name] == 1 and is_descriptive else printable(folder.relative_to(shared))


def _logs_below(path):
    """Yield (folder, log, fault) for each folder below ``path`` that has a training log or cannot be read.

    ``fault`` is why the log cannot be read; "" if it can. For an unreadable folder, the log is the folder itself.
    """
    closed: list[OSError] = []
    for name, folders, files in os.walk(path, onerror=closed.append):
        folders.sort()
        folder, main = Path(name), Path(name, "train.log")
        others = [folder / file for file in sorted(files) if file.endswith(_SUFFIXES) and file != main.name]
        faults: dict[Path, str] = {}
        training = []
        for log in (main, *others):
            if regular(log):  # not a broken link
                beginning, faults[log] = _beginning(log)
                training += [log] * (not faults[log] and looks_like_training(beginning))
            elif log == main and main.name in (*files, *folders):
                faults[main] = run_files.fault_of(main)
            if main in training:
                break
        fault = next(((log, reason) for log, reason in faults.items() if reason), None)
        if len(training) > 1:
            raise InputError(
                f"RUNS {folder}: {training[0].name} and {training[1].name} are both logs of training; give each run its own folder, or"
                " rename the log that the report should use to train.log"
            )
        if training:
            yield folder, training[0], ""
        elif regular(main) and {"state", "command"} <= set(files):
            yield folder, main, faults[main]  # a run of a sweep that failed before fairseq logged anything
        elif fault:
            yield folder, *fault
    for error in closed:
        yield Path(error.filename), Path(error.filename), f"cannot be read ({why(error)})"


def _beginning(log):
    """Return the beginning of a log, and why the log cannot be read ("" if it can)."""
    try:
        with open_regular(log) as file:
            return file.read(_BEGINNING).decode("utf-8", "replace"), ""
    except OSError as error:
        return "", f"cannot be read ({why(error)})"


def _read_run(log_file, folder, name, fault):
    text = ""
    if not fault:
        try:
            text = read_text(log_file, run_files.MOST)
        except OSError as error:
            fault = f"cannot be read ({why(error)})"
    log = read_log(text)
    kept = kept_records(log.parts)
    seed = log.configuration.get("common.seed")
    if not isinstance(seed, int):
        number = re.search(r"(?<![\d.])(\d+)$|(?<!\d)\.(\d+)$", name)
        seed = int(number[1] or number[2]) if number else None
    subsets = [record.subset for record in kept if record.kind == "valid"]
    first = str(log.configuration.get("dataset.valid_subset", "valid")).split(",")[0]
    first = first if first in subsets else next(iter(subsets), first)
    by_update = {r.updates: r for r in kept if r.kind == "valid" and r.subset == first}
    validations = [by_update[update] for update in sorted(by_update)]
    updates = max((record.updates for record in kept), default=0)
    return Run(folder, log_file, name, log, read_clock(log.parts), seed, validations, updates, fault)

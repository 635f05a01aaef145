"""Runs: folders with a training log, found and read."""

import contextlib
import os
import re
from dataclasses import dataclass
from pathlib import Path

from ..errors import InputError
from .clock import Clock, kept_records, read_clock
from .log_reader import Log, Record, looks_like_training, read_log

_SUFFIXES = (".log", ".json", ".jsonl")
_BEGINNING = 1 << 20


@dataclass
class Run:
    """One training run. ``name`` is its folder below what all runs share; ``seed`` is None where nothing tells it."""

    folder: Path
    log_file: Path
    name: str
    log: Log
    clock: Clock
    seed: int | None
    validations: list[Record]
    updates: int

    @property
    def configuration(self) -> dict[str, object]:
        return self.log.configuration

    @property
    def resumes(self) -> int:
        return len(self.log.parts) - 1

    @property
    def state(self) -> str:
        """ "finished", "interrupted" (or still running), or "end not logged" where only a --log-file is there.

        With the step that failed, and its exit status, or that was interrupted, where a sweep says so: in this folder, or in the
        one above, if it is that of a sweep's run whose script made this one.
        """
        trained = "finished" if self.log.done else "interrupted" if self.log.told else "end not logged"
        above = self.folder.parent
        for folder in (self.folder, *[above] * (above / "command").is_file()):
            with contextlib.suppress(OSError, UnicodeDecodeError):
                word, *step = (folder / "state").read_text(encoding="utf-8").split() or [""]
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
        """The name without its seed."""
        return without_seed(self.name, self.seed)

    def size_of(self, pattern: str) -> int | None:
        """Bytes of the first file of that name in the run's folder."""
        files = sorted(self.folder.glob(pattern))
        return files[0].stat().st_size if files else None


def without_seed(name: str, seed: int | None) -> str:
    """``dense-1``, ``dense/seed=1`` and ``dense-seed1`` as ``dense``, ``dense-1/4e-3`` as ``dense/4e-3``, for seed 1.

    Of several folders that end in it the deepest is the seed's.
    """
    if seed is None:
        return name
    # The rates 4e-1 and 0.1 end in no seed.
    before = r"((^|[-_,.])seed[-_=]?|^|(?<!\de)[-_,]|(?<!\d)\.)"
    folders = name.split("/")
    for i in reversed(range(len(folders))):
        short = re.sub(rf"{before}{seed}$", "", folders[i])
        if short != folders[i]:
            folders[i] = short
            break
    return "/".join(filter(None, folders)) or name


def find_runs(paths) -> list[Run]:
    """All runs below ``paths``, in the order given and then by name.

    Raises:
        InputError: a path does not exist, has no training log below it or cannot be read; or two files are of one folder.
    """
    logs: dict = {}
    for path in map(Path, paths):
        if not path.exists():
            raise InputError(f"RUNS {path}: does not exist")
        found = [path.resolve()] if path.is_file() else list(_logs_below(path.resolve()))
        if not found:
            raise InputError(
                f"RUNS {path}: no log of fairseq-train (train.log, or another *.log or *.json) in it or below it"
            )
        for log in found:
            first = logs.setdefault(log.parent, log)
            if path.is_file() and first != log:
                raise InputError(f"RUNS {path}: {first} is in the same folder; give each run a folder of its own")
    shared = Path(os.path.commonpath(list(logs))) if len(logs) > 1 else next(iter(logs)).parent
    return [_read_run(log, folder, _name(folder, shared, logs)) for folder, log in logs.items()]


def _name(folder, shared, folders):
    """The folder's own name where no other has it, else its path below what they share."""
    alone = [other.name for other in folders].count(folder.name) == 1
    says_more = not re.fullmatch(r"(seed[-_=]?)?\d+", folder.name)
    return folder.name if alone and says_more else str(folder.relative_to(shared))


def _logs_below(path):
    for folder, folders, files in os.walk(path):
        folders.sort()
        candidates = sorted(
            (name for name in files if name.endswith(_SUFFIXES)), key=lambda name: (name != "train.log", name)
        )
        # is_file: a link may lead nowhere.
        logs = (log for name in candidates if (log := Path(folder, name)).is_file())
        training = (log for log in logs if looks_like_training(_beginning(log)))
        first = next(training, None)
        if first is None and (log := Path(folder, "train.log")).is_file() and {"state", "command"} <= set(files):
            first = log  # of a sweep's run that failed before fairseq said anything
        if first is None:
            continue
        other = next(training, None) if first.name != "train.log" else None
        if other is not None:
            raise InputError(
                f"RUNS {folder}: {first.name} and {other.name} are logs of training; give each run a folder of its own, or call the one "
                "to be read train.log"
            )
        yield first


def _beginning(log):
    try:
        with log.open(encoding="utf-8", errors="replace") as file:
            return file.read(_BEGINNING)
    except OSError as error:
        raise InputError(f"RUNS {log}: cannot be read ({error.strerror})") from error


def _read_run(log_file, folder, name):
    try:
        text = log_file.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise InputError(f"RUNS {log_file}: cannot be read ({error.strerror})") from error
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
    return Run(folder, log_file, name, log, read_clock(log.parts), seed, validations, updates)

"""Exported models of a study: the size of each arm's file, and the arms that no smaller file matches."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from ...errors import InputError, printable, whole_number
from . import run_files
from .arms import Arm, mean
from .measures import OtherFile, Spread, Study, spread
from .runs import Run

# As sweeps of version 0.1 called it, too.
LOGS = ("export.log", "reservoir.log")
_PRINTED = re.compile(r": ([\d,]+) bytes \(([\d,]+) of data, whose entropy is ([\d,]+)\)")


@dataclass(frozen=True)
class Exported:
    """A run's packed export: bytes of the file, the entropy of its tensors in bytes, where `export` has said it, and what says so."""

    bytes: int
    entropy: int | None = None
    source: str = ""


@dataclass(frozen=True)
class Sized:
    """An arm's bytes (mean over seeds) and test scores, of the seeds that have both; or a point that was given, of no arm."""

    arm: Arm | None
    bytes: float
    test: Spread
    name: str = ""


def read_points(given: Sequence[Sequence[str]]) -> list[OtherFile]:
    """The files that --point adds to the figure of bytes, from their NAME, BYTES and BLEU.

    Raises:
        InputError: the bytes are no positive whole number, the score is not one of 0 to 100, or a name stands twice.
    """
    read: list[OtherFile] = []
    for name, size, score in given:
        try:
            point = OtherFile(printable(name), whole_number(size) or 0, float(score))
        except ValueError:
            point = OtherFile(name, 0, 0.0)
        if point.bytes < 1 or not 0 <= point.bleu <= 100:
            raise InputError(
                f"--point {name} {size} {score}: BYTES must be a positive whole number, BLEU from 0 to 100"
            )
        if any(point.name == other.name for other in read):
            raise InputError(f"--point {name}: given twice; each needs a name of its own")
        read.append(point)
    return read


def exported(run: Run) -> Exported | None:
    """From what the first `fairseq-reservoir export` printed, as a sweep keeps it; else of the first *.safetensors of the folder."""
    for log in run_files.found(run.folder, *LOGS):
        if printed := _PRINTED.findall(run_files.text_of(log) or ""):
            size, _, entropy = (whole_number(number.replace(",", "")) for number in printed[-1])
            if size is not None and entropy is not None:
                return Exported(size, entropy, str(log))
    file = run.size_of("*.safetensors")
    return None if file is None else Exported(file, None, str(run.folder))


def sized(study: Study) -> list[Sized]:
    """The arms that have both an export and a test score, and the points that were given, smallest first."""
    found = []
    for arm in study.arms:
        both = [
            (one.bytes, bleu)
            for run in arm.counted
            if (one := exported(run)) and (bleu := study.tests[run.name].bleu) is not None
        ]
        if both:
            found.append(Sized(arm, mean([size for size, _ in both]), spread([bleu for _, bleu in both]), arm.name))
    found += [Sized(None, point.bytes, spread([point.bleu]), point.name) for point in study.points]
    return sorted(found, key=lambda one: one.bytes)


def front(arms: list[Sized]) -> list[Sized]:
    """Of arms in the order of their bytes those that score better than every smaller one: the Pareto front."""
    best: list[Sized] = []
    for one in arms:
        if not best or one.test.mean > best[-1].test.mean:  # type: ignore[operator]  # those without a mean are left out
            best = [*(other for other in best if other.bytes < one.bytes), one]
    return best

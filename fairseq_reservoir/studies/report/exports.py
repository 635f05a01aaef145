"""Exported models of a study: the file size for each arm, and the Pareto front of file size and test score."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from ...errors import InputError, printable, whole_number
from . import run_files
from .arms import Arm, mean
from .measures import OtherFile, Spread, Study, spread
from .runs import Run

# Sweeps of version 0.1 wrote the second name.
LOGS = ("export.log", "reservoir.log")
# The second part is printed by `export --verbose`.
_PRINTED = re.compile(r": ([\d,]+) bytes(?: \([\d,]+ of data, whose entropy is ([\d,]+)\)|$)", re.MULTILINE)


@dataclass(frozen=True)
class Exported:
    """The file that `fairseq-reservoir export` made from a run.

    Attributes:
        bytes: size of the file.
        entropy: entropy of the file's tensors in bytes; None if there is no log of `export --verbose`.
        source: path of the log that contains the sizes, or else the folder of the file.
    """

    bytes: int
    entropy: int | None = None
    source: str = ""


@dataclass(frozen=True)
class Sized:
    """A point of the figure that shows test scores against file sizes.

    Attributes:
        arm: the arm; None for a file of ``--point``.
        bytes: mean file size over the seeds with an export and a test score.
        test: test sacreBLEU over the same seeds.
        name: name of the arm or of the file.
    """

    arm: Arm | None
    bytes: float
    test: Spread
    name: str = ""


def read_points(given: Sequence[Sequence[str]]) -> list[OtherFile]:
    """Parse the values of --point: the NAME, BYTES and BLEU of each file.

    Raises:
        InputError: BYTES is not a positive whole number, BLEU is not between 0 and 100, or a name occurs twice.
    """
    read: list[OtherFile] = []
    for name, size, score in given:
        try:
            point = OtherFile(printable(name), whole_number(size) or 0, float(score))
        except ValueError:
            point = OtherFile(name, 0, 0.0)
        if point.bytes < 1 or not 0 <= point.bleu <= 100:
            raise InputError(
                f"--point {name} {size} {score}: BYTES must be a positive whole number, and BLEU a number from 0 to 100"
            )
        if any(point.name == other.name for other in read):
            raise InputError(f"--point {name}: this name occurs twice; give each file its own name")
        read.append(point)
    return read


def exported(run: Run) -> Exported | None:
    """Return the export of a run; None if the run has no export.

    The sizes are read from the log of `fairseq-reservoir export`. If there is no log, the size of the first *.safetensors in the run's
    folder is used.
    """
    for log in run_files.found(run.folder, *LOGS):
        if printed := _PRINTED.findall(run_files.text_of(log) or ""):
            size, entropy = (whole_number(number.replace(",", "")) for number in printed[-1])
            if size is not None and (entropy is not None or not printed[-1][1]):
                return Exported(size, entropy, str(log))
    file = run.size_of("*.safetensors")
    return None if file is None else Exported(file, None, str(run.folder))


def exported_by(arm: Arm) -> Exported | None:
    """Return the export of the arm's first run that has one, or None."""
    return next(filter(None, map(exported, arm.runs)), None)


def sized(study: Study) -> list[Sized]:
    """Return a point for each arm with an export and a test score, and for each file of ``--point``, in ascending order of size."""
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
    """Return the Pareto front, ordered by size: each point has a better test score than all smaller files. ``arms`` is ordered by size."""
    best: list[Sized] = []
    for one in arms:
        if not best or one.test.mean > best[-1].test.mean:  # type: ignore[operator]  # all arms here have a mean
            best = [*(other for other in best if other.bytes < one.bytes), one]
    return best

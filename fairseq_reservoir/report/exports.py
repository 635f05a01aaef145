"""Exported models of a study: the size of each arm's file, and the arms that no smaller file matches."""

import re
from dataclasses import dataclass

from .arms import Arm
from .measures import Spread, Study, spread
from .runs import Run

_PRINTED = re.compile(r": ([\d,]+) bytes \(([\d,]+) of data, whose entropy is ([\d,]+)\)")


@dataclass(frozen=True)
class Exported:
    """A run's packed export: bytes of the file, and the entropy of its tensors in bytes, where `export` has said it."""

    bytes: int
    entropy: int | None = None


@dataclass(frozen=True)
class Sized:
    """An arm's bytes (mean over seeds) and test scores."""

    arm: Arm
    bytes: float
    test: Spread


def exported(run: Run) -> Exported | None:
    """From what `fairseq-reservoir export` printed into export.log, as a sweep keeps it; else the first *.safetensors of the folder."""
    log = run.folder / "export.log"
    if log.is_file() and (said := _PRINTED.findall(log.read_text(encoding="utf-8", errors="replace"))):
        size, _, entropy = (int(number.replace(",", "")) for number in said[-1])
        return Exported(size, entropy)
    file = run.size_of("*.safetensors")
    return None if file is None else Exported(file)


def sized(study: Study) -> list[Sized]:
    """The arms that have both an export and a test score, smallest first."""
    found = []
    for arm in study.arms:
        size = spread([one.bytes if (one := exported(run)) else None for run in arm.counted])
        test = spread([study.tests[run.name].bleu for run in arm.counted])
        if size.mean is not None and test.mean is not None:
            found.append(Sized(arm, size.mean, test))
    return sorted(found, key=lambda one: one.bytes)


def front(arms: list[Sized]) -> list[Sized]:
    """Of arms in the order of their bytes those that score better than every smaller one: the Pareto front."""
    best: list[Sized] = []
    for one in arms:
        if not best or one.test.mean > best[-1].test.mean:  # type: ignore[operator]  # those without a mean are left out
            best = [*(other for other in best if other.bytes < one.bytes), one]
    return best

"""Cells as the tables of a report share them."""

from .arms import Arm
from .measures import Spread, Study
from .tables import Cell

EMPTY, NEVER = Cell("—", number=True), Cell("never", number=True)


def score_digits(study: Study) -> int:
    return 3 if not study.metric.higher else 2


def name_cell(arm: Arm) -> Cell:
    return Cell(arm.name, source=sources(arm))


def sources(arm: Arm) -> str:
    return ", ".join(str(run.log_file) for run in arm.runs)


def p_cell(p: float, where: str) -> Cell:
    return Cell(f"{p:.4f}" if p >= 0.0001 else "<0.0001", p, source=where)


def cell(found: Spread, digits: int | None, arm: Arm) -> Cell:
    """``mean ± deviation``, and over how many seeds where not all have a value; None digits are four significant ones."""
    if found.mean is None:
        return EMPTY

    def text(number):
        return f"{number:.4g}" if digits is None else f"{number:,.{digits}f}"

    shown = text(found.mean) + (f" ± {text(found.deviation)}" if found.deviation is not None else "")
    shown += f" ({found.count} of {found.total})" if found.count < found.total else ""
    return Cell(shown, found.mean, found.deviation, sources(arm))

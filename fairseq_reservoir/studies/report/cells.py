"""Cells that occur in several tables of a report."""

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
    """Return the cell ``mean ± deviation``. If some seeds have no value, add the number of seeds that have one: ``(2 of 3)``.

    ``digits`` is the number of decimals; None means four significant digits.
    """
    if found.mean is None:
        return EMPTY

    def text(number):
        return f"{number:.4g}" if digits is None else f"{number:,.{digits}f}"

    shown = text(found.mean) + (f" ± {text(found.deviation)}" if found.deviation is not None else "")
    shown += f" ({found.count} of {found.total})" if found.count < found.total else ""
    return Cell(shown, found.mean, found.deviation, sources(arm))

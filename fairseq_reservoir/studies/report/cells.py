"""Format numbers and lists of words, and make the cells that occur in several tables of a report."""

import math

from .arms import Arm
from .configuration import is_number
from .measures import Spread
from .tables import Cell

EMPTY, NEVER = Cell("—", number=True), Cell("never", number=True)


def plural(count: int, noun: str) -> str:
    """Return the count and the noun: "1 seed", "3 seeds"."""
    return f"{count:,} {noun}{'s' * (count != 1)}"


def listed(words: list[str], most: int = 8) -> str:
    """Join words: "a, b and c". If there are more than ``most`` words, replace the last ones by their number: "a and 3 others"."""
    if len(words) > most:
        words = [*words[: most - 1], f"{len(words) - most + 1} others"]
    return " and ".join(filter(None, [", ".join(words[:-1]), words[-1]])) if words else ""


def fixed(number: float, digits: int) -> str:
    """Return a number with ``digits`` decimals, thousands separators and a typographic minus sign (U+2212)."""
    return f"{number:,.{digits}f}".replace("-", "−")


def signed(number: float, digits: int) -> str:
    """Return a number like ``fixed``, with a plus or minus sign."""
    return f"{number:+,.{digits}f}".replace("-", "−")


def p_text(p: float) -> str:
    """Return a p-value with at most four decimals."""
    return f"{p:.4f}" if p >= 0.0001 else "<0.0001"


def name_cell(arm: Arm) -> Cell:
    return Cell(arm.name, source=sources(arm))


def sources(arm: Arm) -> str:
    return ", ".join(str(run.log_file) for run in arm.runs)


def p_cell(p: float, where: str) -> Cell:
    return Cell(p_text(p), p, source=where)


def value_cell(value: object, where: str = "") -> Cell:
    """Return the cell of a flag's value."""
    return Cell(str(value), value if is_number(value) else None, source=where)  # type: ignore[arg-type]


def cell(found: Spread, digits: int, arm: Arm) -> Cell:
    """Return the cell ``mean ± deviation``. If some seeds have no value, add the number of seeds that have one: ``(2 of 3)``."""
    if found.mean is None:
        return EMPTY
    shown = spread_text(found, digits)
    shown += f" ({found.count} of {found.total})" if found.count < found.total else ""
    return Cell(shown, found.mean, found.deviation, sources(arm))


def spread_text(found: Spread, digits: int) -> str:
    """Return ``mean ± deviation``, or only the mean of a single value."""
    return fixed(found.mean or 0.0, digits) + (
        f" ± {fixed(found.deviation, digits)}" if found.deviation is not None else ""
    )


def column(found: list[Spread], arms: list[Arm]) -> list[Cell]:
    """Return the cells of a column. The number of decimals is chosen so that the largest mean has four significant digits."""
    largest = max((abs(one.mean) for one in found if one.mean), default=1.0)
    digits = max(0, 3 - math.floor(math.log10(largest)))
    return [cell(one, digits, arm) for one, arm in zip(found, arms)]

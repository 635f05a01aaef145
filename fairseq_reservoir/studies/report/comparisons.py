"""Comparisons of two arms that ``--compare`` names: differences over seeds, and p corrected for how many are named."""

from ...errors import InputError
from .arms import Arm, find_arm
from .cells import EMPTY, name_cell, p_cell, sources
from .measures import Study
from .over_seeds import difference, difference_cells, scores
from .tables import Cell, Table

FLAG = "--compare"


def find_pairs(names, arms: list[Arm]) -> list[tuple[Arm, Arm]]:
    """The arms of each of ``names``, pairs of names of arms or of their runs.

    Raises:
        InputError: an arm does not exist, a pair names one arm twice, or a pair is given twice.
    """
    pairs: list[tuple[Arm, Arm]] = []
    for two in names:
        first, second = (find_arm(name, arms, FLAG) for name in two)
        if first is second:
            raise InputError(f"{FLAG} {' '.join(two)}: both are of the arm {first.name}; name two arms")
        if any({first.name, second.name} == {one.name, other.name} for one, other in pairs):
            raise InputError(f"{FLAG} {' '.join(two)}: is named twice, and would count twice; name it once")
        pairs.append((first, second))
    return pairs


def corrected(values: list[float | None]) -> list[float | None]:
    """Holm's correction: with p₁ <= ... <= pₘ, the i-th becomes the largest of min(1, (m + 1 - k) pₖ) over k <= i.

    If every comparison whose corrected p is below 0.05 is called shown, the chance that any of them is a false alarm is at most 5 %,
    however they depend on each other (Holm, 1979). None, of a comparison without p, stays None and counts among the m.
    """
    found: list[float | None] = [None] * len(values)
    order = sorted((p, i) for i, p in enumerate(values) if p is not None)
    largest = 0.0
    for rank, (p, i) in enumerate(order):
        largest = max(largest, min(1.0, (len(values) - rank) * p))
        found[i] = largest
    return found


def comparisons_table(study: Study) -> Table:
    """The table of the study's named comparisons, each score's p corrected by itself."""
    compared = scores(study)
    found = [
        [difference(score.values(one), score.values(other)) for score in compared] for one, other in study.comparisons
    ]
    adjusted = [corrected([one.p if one else None for one in of_score]) for of_score in zip(*found)]
    rows = []
    for (first, second), differences, p_of_scores in zip(study.comparisons, found, zip(*adjusted)):
        where = f"{sources(first)}, {sources(second)}"
        counts = dict.fromkeys(f"{one.counts[0]} and {one.counts[1]}" for one in differences if one)
        row = [name_cell(first), name_cell(second), Cell("; ".join(counts) or "fewer than two of one")]
        for score, one, p in zip(compared, differences, p_of_scores):
            row += [*difference_cells(one, score.digits, where), EMPTY if p is None else p_cell(p, where)]
        rows.append(row)
    head = ["arm", "minus", "seeds"]
    for score in compared:
        head += [f"{score.label}: {what}" for what in ("difference", "95 % ±", "p", "corrected p")]
    notes = [
        f"Welch's t-test over seeds, two-sided; corrected p: Holm's, over the comparisons named, {len(rows)}. Below 0.05 a difference is"
        " shown, if these comparisons and no others were chosen before the runs. The intervals are not corrected."
    ]
    return Table("named", "Comparisons named beforehand", head, rows, notes)

"""Pre-registered comparisons of ``--compare``: differences over seeds with Holm-corrected p-values."""

from ...errors import InputError
from .arms import Arm, find_arm
from .cells import EMPTY, name_cell, p_cell, sources
from .measures import Study
from .seed_differences import difference, difference_cells, scores
from .tables import Cell, Table

FLAG = "--compare"


def find_pairs(names, arms: list[Arm]) -> list[tuple[Arm, Arm]]:
    """Return the pairs of arms for pairs of names. A name is that of an arm or of one of its runs.

    Raises:
        InputError: an arm does not exist, a pair names one arm twice, or a pair is given twice.
    """
    pairs: list[tuple[Arm, Arm]] = []
    for two in names:
        first, second = (find_arm(name, arms, FLAG) for name in two)
        if first is second:
            raise InputError(f"{FLAG} {' '.join(two)}: both name the arm {first.name}; name two arms")
        if any({first.name, second.name} == {one.name, other.name} for one, other in pairs):
            raise InputError(f"{FLAG} {' '.join(two)}: is given twice, and would count twice; give it once")
        pairs.append((first, second))
    return pairs


def corrected(values: list[float | None]) -> list[float | None]:
    """Holm's correction: with p₁ <= ... <= pₘ, the i-th becomes the largest of min(1, (m + 1 - k) pₖ) over k <= i.

    If all comparisons with a corrected p below 0.05 count as significant, the probability of at least one false positive is at most
    5 %, even for dependent comparisons (Holm, 1979). A comparison without p stays None, and counts among the m.
    """
    found: list[float | None] = [None] * len(values)
    order = sorted((p, i) for i, p in enumerate(values) if p is not None)
    largest = 0.0
    for rank, (p, i) in enumerate(order):
        largest = max(largest, min(1.0, (len(values) - rank) * p))
        found[i] = largest
    return found


def comparisons_table(study: Study) -> Table:
    """Build the table of comparisons. The p-values of each score are corrected separately."""
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
        f"Welch's t-test over seeds, two-sided; corrected p: Holm's correction for {len(rows)} comparisons. Below 0.05 a difference is"
        " significant, if these comparisons and no others were chosen before the runs. The intervals are not corrected."
    ]
    return Table("named", "Pre-registered comparisons", head, rows, notes)

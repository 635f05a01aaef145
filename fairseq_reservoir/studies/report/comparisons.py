"""The comparisons that ``--compare`` names: differences between arms, tested over seeds, with Holm-corrected p-values."""

from ...errors import InputError
from .arms import Arm, find_arm
from .cells import EMPTY, name_cell, p_cell, sources
from .measures import Study
from .seed_differences import Difference, Score, difference, difference_cells, scores
from .tables import Cell, Table

FLAG = "--compare"
Tested = tuple[Score, Difference | None, float | None]


def find_pairs(names, arms: list[Arm]) -> list[tuple[Arm, Arm]]:
    """Convert pairs of names to pairs of arms. A name may be the name of an arm or of a run.

    Raises:
        InputError: an arm does not exist, both names of a pair belong to the same arm, or a pair occurs twice.
    """
    pairs: list[tuple[Arm, Arm]] = []
    for two in names:
        first, second = (find_arm(name, arms, FLAG) for name in two)
        if first is second:
            raise InputError(
                f"{FLAG} {' '.join(two)}: both names belong to the arm {first.name}; name two different arms"
            )
        if any({first.name, second.name} == {one.name, other.name} for one, other in pairs):
            raise InputError(
                f"{FLAG} {' '.join(two)}: this pair occurs twice, and Holm's correction would count it twice; remove one"
            )
        pairs.append((first, second))
    return pairs


def corrected(values: list[float | None]) -> list[float | None]:
    """Apply Holm's correction (1979) to the p-values of m comparisons.

    Let p₁ <= ... <= pₘ be the sorted p-values. The corrected value of pᵢ is the maximum of min(1, (m + 1 - k) pₖ) over all k <= i. If
    corrected values below 0.05 are called significant, the probability of at least one false positive is at most 5 %. This also holds
    for dependent comparisons. A comparison without a p-value is counted in m, and its corrected value is None.
    """
    found: list[float | None] = [None] * len(values)
    order = sorted((p, i) for i, p in enumerate(values) if p is not None)
    largest = 0.0
    for rank, (p, i) in enumerate(order):
        largest = max(largest, min(1.0, (len(values) - rank) * p))
        found[i] = largest
    return found


def compare_pairs(study: Study, compared: list[Score]) -> list[tuple[Arm, Arm, tuple[Tested, ...]]]:
    """Test the pairs of ``--compare`` by each of the ``compared`` scores. The p-values of each score are corrected separately.

    Returns:
        (arm, other arm, tests) for each pair. ``tests`` has (score, difference, corrected p) for each score.
    """
    of_scores = []
    for score in compared:
        differences = [difference(score.values(one), score.values(other)) for one, other in study.comparisons]
        ps = corrected([one.p if one else None for one in differences])
        of_scores.append([(score, one, p) for one, p in zip(differences, ps)])
    return [(*pair, tests) for pair, tests in zip(study.comparisons, zip(*of_scores))]


def comparisons_table(study: Study) -> Table:
    """Build the table of comparisons."""
    compared, rows, several = scores(study), [], len(study.comparisons) > 1
    for first, second, tests in compare_pairs(study, compared):
        where = f"{sources(first)}, {sources(second)}"
        counts = dict.fromkeys(f"{one.counts[0]} and {one.counts[1]}" for _, one, _ in tests if one)
        row = [name_cell(first), name_cell(second), Cell("; ".join(counts) or "one has fewer than two")]
        for score, one, p in tests:
            row += difference_cells(one, score.digits, where)
            if several:
                row.append(EMPTY if p is None else p_cell(p, where))
        rows.append(row)
    head, groups = ["arm", "minus", "seeds"], [""] * 3
    for score in compared:
        columns = ["difference", "95 % ±", "p", *(["corrected p"] if several else [])]
        head += columns
        groups += [score.label] * len(columns)
    if several:
        note = (
            f"Corrected p: Holm's correction for {len(rows)} comparisons. A difference with a corrected p below 0.05 is significant if"
            " exactly these comparisons were chosen before the runs were started. The confidence intervals are not corrected."
        )
    else:
        note = "A difference with p below 0.05 is significant if only this comparison was chosen before the runs were started."
    notes = [f"Two-sided Welch's t-test over seeds. {note}"]
    return Table("named", "Chosen comparisons", head, rows, notes, groups)

"""Comparison of the trainings in ``cases`` on the fake device with fairseq's plain trainings."""

import time
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import nullcontext

from tests.conftest import write_corpus

from .cases import CASES, Case
from .plants import PLANTS
from .recorded import recording
from .training import Outcome, train

HEAD = "| training | reads | fairseq's | copies to the device | fairseq's |\n|---|---|---|---|---|"


def found(data, groups: Collection[str] = (), only: str = "", exact: bool = False) -> Iterator[dict]:
    """Run the cases and yield the result of each.

    A result has the case's name, ``problems`` as text, ``reads`` and ``copies`` of the last update for ours and fairseq's (None if
    it failed), ``seen``, the problem that a planted mistake must cause, and the seconds of ours.

    Args:
        data: a folder to create.
        groups, only: cases of these groups, and with this in their name; without groups all except planted mistakes.
        exact: train fairseq's model at the same depth, even if it is deep.
    """
    write_corpus(data, train=3)
    plain: dict[tuple[str, int], Outcome] = {}
    wanted = [case for case in CASES if (case.group in groups if groups else not case.plant) and only in case.name]
    for case in wanted:
        for depth in {case.depth} if exact or case.depth <= 2 else {1, 2}:
            if (case.plain, depth) not in plain:
                updates = max(other.updates for other in wanted if other.plain == case.plain)
                plain[case.plain, depth] = train(data, case.plain.format(depth=depth), updates)
        theirs, plant = _of_depth(plain, case), PLANTS.get(case.plant)
        began = time.process_time()
        context = plant.make if plant else recording if case.recorded else nullcontext
        ours = train(data, case.ours, case.updates, context)
        yield {
            "name": case.name,
            "problems": list(_problems(ours, theirs, case)),
            "reads": [_last(outcome.reads, case) for outcome in (ours, theirs)],
            "copies": [_last(outcome.copies, case) for outcome in (ours, theirs)],
            "seen": plant.seen if plant else None,
            "seconds": time.process_time() - began,
        }


def _of_depth(plain, case):
    """fairseq's training with the same number of layers as the case.

    The reads of three and more layers are extrapolated from one and two layers, if they were not run: each further encoder layer
    reads as much as the second.
    """
    if (case.plain, case.depth) in plain:
        return plain[case.plain, case.depth]
    one, two = plain[case.plain, 1], plain[case.plain, 2]
    reads, copies = (
        [_beyond(*counters, case.depth - 2) for counters in zip(getattr(one, of), getattr(two, of))]
        for of in ("reads", "copies")
    )
    return Outcome(one.error or two.error, reads, copies, two.left, two.without_gradient, two.not_pinned)


def _beyond(one, two, further):
    """``two`` plus, for each further layer, its difference to ``one``."""
    return Counter({where: two[where] + further * (two[where] - one[where]) for where in two})


def _problems(ours: Outcome, theirs: Outcome, case: Case) -> Iterator[str]:
    if theirs.error:
        yield f"fairseq's own: {theirs.error}"
    if ours.error:
        yield ours.error
    for number in range(min(len(ours.reads), len(theirs.reads))):
        if case.recorded and number == 3:  # a longer batch than fairseq's, for which masks and positions grow
            continue
        for kind in ("reads", "copies"):
            found = getattr(ours, kind)[number]
            further = found - getattr(theirs, kind)[number]
            if kind == "reads" and case.at_most is not None:
                further = found if sum(found.values()) > case.at_most else Counter()
            if kind == "copies" and case.recorded:  # the whole batch is one tensor, at another line
                further = found if found.total() > getattr(theirs, kind)[number].total() - 4 else Counter()
            yield from (f"update {number + 1}: {count} x {what}, {where}" for (what, where), count in further.items())
    yield from (f"on the CPU: {name}" for name in ours.left)
    yield from (f"not in pinned memory on its way to the device: {name}" for name in ours.not_pinned)
    # fairseq has unused parameters, such as conv_bias of a convolution.
    yield from (f"no gradient: {name}" for name in ours.without_gradient if name not in theirs.without_gradient)


def _last(counters, case: Case) -> int | None:
    return sum(counters[case.updates - 1].values()) if len(counters) >= case.updates else None


def row(result: dict) -> str:
    """Row of a case in the Markdown table that begins with ``HEAD``."""
    return f"| {' | '.join(str(cell) for cell in [result['name'], *result['reads'], *result['copies']])} |"

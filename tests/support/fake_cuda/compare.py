"""What the trainings of ``cases`` do on the fake device beyond what fairseq's plain ones do."""

import time
from collections.abc import Collection, Iterator
from contextlib import nullcontext

from tests.conftest import write_corpus

from .cases import CASES, Case
from .plants import PLANTS
from .training import Outcome, train

HEAD = "| training | reads | fairseq's | copies to the device | fairseq's |\n|---|---|---|---|---|"


def found(data, groups: Collection[str] = (), only: str = "") -> Iterator[dict]:
    """What each case does, as soon as it is known.

    Its name; ``problems`` in words; ``reads`` and ``copies`` of its last update, ours and fairseq's, None if it failed; ``seen``, what
    the problems have to say of a planted mistake; the seconds that ours took.

    Args:
        data: a folder that is made.
        groups, only: the cases of these groups, and with this in their name; without a group all but those of planted mistakes.
    """
    write_corpus(data, train=3)
    plain: dict[str, Outcome] = {}
    for case in CASES:
        wanted = case.group in groups if groups else not case.plant
        if not wanted or only not in case.name:
            continue
        if case.plain not in plain:
            plain[case.plain] = train(data, case.plain, max(c.updates for c in CASES if c.plain == case.plain))
        theirs, plant = plain[case.plain], PLANTS.get(case.plant)
        began = time.process_time()
        ours = train(data, case.ours, case.updates, plant.make if plant else nullcontext)
        yield {
            "name": case.name,
            "problems": list(_problems(ours, theirs)),
            "reads": [_last(outcome.reads, case) for outcome in (ours, theirs)],
            "copies": [_last(outcome.copies, case) for outcome in (ours, theirs)],
            "seen": plant.seen if plant else None,
            "seconds": time.process_time() - began,
        }


def _problems(ours: Outcome, theirs: Outcome) -> Iterator[str]:
    if theirs.error:
        yield f"fairseq's own: {theirs.error}"
    if ours.error:
        yield ours.error
    for number in range(min(len(ours.reads), len(theirs.reads))):
        for kind in ("reads", "copies"):
            further = getattr(ours, kind)[number] - getattr(theirs, kind)[number]
            yield from (f"update {number + 1}: {count} x {what}, {where}" for (what, where), count in further.items())
    yield from (f"on the CPU: {name}" for name in ours.left)
    # fairseq has parameters without a use, as a convolution's conv_bias.
    yield from (f"no gradient: {name}" for name in ours.without_gradient if name not in theirs.without_gradient)


def _last(counters, case: Case) -> int | None:
    return sum(counters[case.updates - 1].values()) if len(counters) >= case.updates else None


def row(result: dict) -> str:
    """The row of a case in the table that ``HEAD`` begins, Markdown."""
    return f"| {' | '.join(str(cell) for cell in [result['name'], *result['reads'], *result['copies']])} |"

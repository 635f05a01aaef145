"""Checks of the flags of a search: each number, and those that depend on each other."""

from argparse import Namespace
from typing import Any

from ..errors import InputError, flag_of
from . import fairseq_rules
from .number_rules import check as check_rules

# Ways to search of which fairseq takes one.
_SEARCHES = ("sampling", "diverse_beam_groups", "match_source_len", "diversity_rate")


def check(flags: Namespace) -> None:
    """Refuses what fairseq's search cannot do.

    Args:
        flags: of a command that searches, or the options of generation alone.

    Raises:
        InputError: one line with the flag, the value and what is allowed.
    """
    check_rules(flags, fairseq_rules.GENERATION)
    chosen = [flag_of(name) for name in _SEARCHES if (value := getattr(flags, name, None)) is not None and value > 0]
    if len(chosen) > 1:
        raise InputError(f"{' and '.join(chosen)}: give one of them")
    _check_sampling(flags)
    beam, groups = getattr(flags, "beam", 5), getattr(flags, "diverse_beam_groups", -1)
    if groups > 0 and beam % groups:
        raise InputError(f"--diverse-beam-groups {groups}: must divide --beam, {beam}")
    least, most = getattr(flags, "min_len", 1), getattr(flags, "max_len_b", 200)
    if not getattr(flags, "max_len_a", 0) and least > most:
        raise InputError(f"--min-len {least}: must be at most --max-len-b, {most}")


def _check_sampling(flags: Any) -> None:
    if getattr(flags, "sampling", False):
        beam, nbest = getattr(flags, "beam", 5), getattr(flags, "nbest", 1)
        if hasattr(flags, "path") and beam != nbest:  # else nothing prints them
            raise InputError(f"--sampling: prints all samples, so --nbest, {nbest}, must be --beam, {beam}")
        return
    for name in ("sampling_topk", "sampling_topp"):
        value = getattr(flags, name, -1)
        if value >= 0:
            raise InputError(f"{flag_of(name)} {value}: needs --sampling")

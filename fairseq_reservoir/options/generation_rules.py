"""Check the flags of a search: each number, and combinations of flags."""

from argparse import Namespace

from ..errors import InputError, flag_of
from . import fairseq_rules
from .fairseq_flags import SearchFlags
from .number_rules import check as check_rules
from .reading import read

# Flags that choose a search algorithm. If several are given, fairseq ignores all but one.
_SEARCHES = ("sampling", "diverse_beam_groups", "match_source_len", "diversity_rate")


def check(flags: Namespace) -> None:
    """Refuse search options that fairseq cannot use.

    Args:
        flags: all flags of a command that searches, or only the options of generation.
    """
    check_rules(flags, fairseq_rules.GENERATION)
    search = read(SearchFlags, flags)
    chosen = [flag_of(name) for name in _SEARCHES if (value := vars(search)[name]) is not None and value > 0]
    if len(chosen) > 1:
        raise InputError(f"{' and '.join(chosen)}: use only one of them")
    _check_sampling(search, prints=hasattr(flags, "path"))
    beam, groups = search.beam, search.diverse_beam_groups
    if groups > 0 and beam % groups:
        raise InputError(f"--diverse-beam-groups {groups}: must divide --beam, {beam}")
    if not search.max_len_a and search.min_len > search.max_len_b:
        raise InputError(f"--min-len {search.min_len}: must be at most --max-len-b, {search.max_len_b}")
    if search.retain_dropout_modules is not None and not search.retain_dropout:
        raise InputError(f"--retain-dropout-modules {search.retain_dropout_modules}: needs --retain-dropout")


def _check_sampling(search: SearchFlags, prints: bool) -> None:
    if search.sampling:
        if prints and search.beam != search.nbest:
            raise InputError(
                f"--sampling: fairseq prints all samples, so --nbest ({search.nbest}) must equal --beam ({search.beam})"
            )
        return
    for flag, value in (("--sampling-topk", search.sampling_topk), ("--sampling-topp", search.sampling_topp)):
        if value >= 0:
            raise InputError(f"{flag} {value}: needs --sampling")

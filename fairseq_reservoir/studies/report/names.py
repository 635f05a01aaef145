"""Remove the value of a flag from the names of runs and arms: LTLTL-lr4e-3 becomes LTLTL for --lr 0.004."""

import re

from .configuration import is_number

# A word of a name, with its separator: letters that may abbreviate the flag, and a number.
_NUMBER = r"[-+]?\d+(?:\.\d*)?(?:e[-+]?\d+)?"
_WORD = re.compile(rf"(?:^|[-_,/ ])(?P<flag>[A-Za-z_]*?)(?P<link>[-_=]?)(?P<number>{_NUMBER})(?=$|[-_,/ ])")


def without_value(name: str, key: str, value: object) -> str:
    """Remove the value of a flag, and the abbreviated flag before it, from a name. A name without this value is returned unchanged.

    Args:
        name: name of a run without its seed, such as ``LTLTL-lr4e-3``.
        key: configuration key of the flag, such as ``optimization.lr``. The abbreviation of the flag in the name must be a part of the
            flag.
        value: the run's value of the flag, a number or a text.
    """
    leaf = key.rpartition(".")[2]
    if not is_number(value):
        short = re.sub(rf"(^|[-_,/ =]){re.escape(str(value))}(?=$|[-_,/ ])", "", name, count=1)
        return short.strip("-_,/ ") or name
    at = 0
    as_key = name.replace(leaf.replace("_", "-"), leaf)  # a sweep writes the whole flag, as in mask-keep-ratio0.3
    while word := _WORD.search(as_key, at):
        is_letter = len(word["flag"]) == 1 and word["link"] == "-"  # the plan L of L-6, not a flag
        if float(word["number"]) == value and word["flag"].lower() in leaf and not is_letter:
            return (as_key[: word.start()] + as_key[word.end() :]).strip("-_,/ ") or name
        at = word.start() + 1  # words may overlap: LTL-0.3 is the flag LTL with 0.3, or 0.3 alone
    return name

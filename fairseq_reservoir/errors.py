"""``InputError``, the exception for a user's mistake, and checks of words and numbers that flags share."""

import re

_LONGEST_WORD, _LONGEST_LINE = 300, 2000
_DIGITS = 15


class InputError(ValueError):
    """A flag or file is not usable as given.

    The message is one line: the flag or file, the value received, what is allowed. A line feed or another control character
    in a value is shown by its escape, and of a value of hundreds of characters the beginning and the end. From Python it is an
    ordinary ``ValueError``; the fairseq commands print its message alone (see ``fairseq_repairs.error_report``).
    """

    def __init__(self, message: object) -> None:
        super().__init__(in_one_line(str(message)))


def in_one_line(text: str) -> str:
    """``text`` without line feeds, and not longer than a screen."""
    line = "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
    line = re.sub(rf"\S{{{_LONGEST_WORD + 1},}}", lambda word: f"{word[0][:80]}...{word[0][-20:]}", line)
    return line if len(line) <= _LONGEST_LINE else f"{line[: _LONGEST_LINE - 100]}...{line[-90:]}"


def printable(text: object) -> str:
    """``text`` as UTF-8 can hold it. Python keeps bytes of a file name that are not UTF-8 as surrogates; each becomes an escape."""
    return str(text).encode(errors="backslashreplace").decode()


def check_words(words: list[str]) -> None:
    """Refuses words of a command line that fairseq cannot read.

    argparse makes an empty list of ``--flag=--``, whatever type the flag has; hydra takes a last backslash for the end of a text.
    """
    for word in words:
        if word.endswith("\\"):
            raise InputError(f"{word}: ends in a backslash, which fairseq cannot read")
        if word.startswith("--") and word.endswith("=--"):
            raise InputError(f"{word.removesuffix('=--')} '--': is no value")


def flag_of(name: str) -> str:
    """The flag of an option, as an error names it: ``mask_pin`` -> ``--mask-pin``."""
    return "--" + name.replace("_", "-")


def whole_number(text: str) -> int | None:
    """The number that ``text`` writes in at most 15 digits, or None: Python's own ``int`` refuses some longer ones, and takes others."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= _DIGITS else None

"""``InputError``, the exception for a user's mistake, and checks of command-line arguments and packages."""

import re
from collections.abc import Iterable
from importlib import import_module
from typing import Any

_LONGEST_WORD, _LONGEST_LINE = 300, 2000
_DIGITS = 15


class InputError(ValueError):
    """Error in a flag or file of the user.

    The message is one line: the flag or file, its value and the allowed values. Control characters are escaped, and very long
    values are shortened. Python code can catch the error as a ``ValueError``. fairseq's commands print only the message, without
    a traceback (see ``fairseq_repairs.error_report``).

    Attributes:
        messages: one message for each mistake that the line reports or counts.
    """

    def __init__(self, message: object, messages: Iterable[str] = ()) -> None:
        super().__init__(in_one_line(str(message)))
        self.messages = tuple(messages) or (str(message),)


def in_one_line(text: str) -> str:
    """Escape control characters in ``text`` and shorten it to 2,000 characters at most."""
    line = "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
    line = re.sub(rf"\S{{{_LONGEST_WORD + 1},}}", lambda word: f"{word[0][:80]}...{word[0][-20:]}", line)
    return line if len(line) <= _LONGEST_LINE else f"{line[: _LONGEST_LINE - 100]}...{line[-90:]}"


def printable(text: object) -> str:
    """Escape surrogates in ``text``. Python uses them for the bytes of a file name that are not UTF-8."""
    return str(text).encode(errors="backslashreplace").decode()


def check_arguments(arguments: list[str]) -> None:
    """Refuse command-line arguments that fairseq misreads.

    argparse reads ``--flag=--`` as an empty list for every type of flag. hydra reads a final backslash as an escape.

    Raises:
        InputError: an argument ends in a backslash or in "=--".
    """
    for argument in arguments:
        if argument.endswith("\\"):
            raise InputError(f"{argument}: ends in a backslash, which fairseq cannot read")
        if argument.startswith("--") and argument.endswith("=--"):
            raise InputError(f"{argument.removesuffix('=--')} '--': is not a valid value")


def flag_of(name: str) -> str:
    """Flag of an option: ``mask_pin`` -> ``--mask-pin``."""
    return "--" + name.replace("_", "-")


def whole_number(text: str) -> int | None:
    """Parse a whole number of at most 15 ASCII digits; None for other text. Unlike ``int``, it never raises."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= _DIGITS else None


def optional_package(name: str, needed_by: str) -> Any:
    """Import a package that may be missing.

    Args:
        name: name of the package, which must be the same for ``import`` and for pip.
        needed_by: beginning of the error message, such as "--compact needs".

    Raises:
        InputError: the package is not installed.
    """
    try:
        return import_module(name)
    except ImportError as error:
        raise InputError(f"{needed_by} the package {name}, which is not installed: pip install {name}") from error

"""Print one line instead of a traceback when a user's mistake ends a fairseq command."""

import errno
import os
import re
import sys
from pathlib import Path

from ..errors import InputError
from .index_files import MAKE_IT
from .repair import wrap

# End of a message about a missing file in the DATA folder.
SEE_DATA = "see DATA, --gen-subset, --valid-subset, --dataset-impl"


def find_input_error(error):
    """Return the first ``InputError`` in an error's chain of causes.

    If there is none, return a new ``InputError`` for a file that is missing or cannot be opened. Return None for other errors.
    """
    return _mistake_in_chain(error) or _missing_split(error) or _error_of_a_file(error)


def _mistake_in_chain(error):
    seen, waiting = set(), [error]
    while waiting:
        link = waiting.pop(0)
        if link is None or id(link) in seen:
            continue
        if isinstance(link, InputError):
            return link
        seen.add(id(link))
        waiting += [link.__cause__, link.__context__]
    return None


def _missing_split(error):
    """Return an ``InputError`` if a task has not found its binarised data, else None."""
    if isinstance(error, FileNotFoundError) and str(error).startswith("Dataset not found"):
        return InputError(f"{error}; {MAKE_IT} ({SEE_DATA})")
    return None


# Errors that a user can avoid by another file name or other permissions. A full disk is not among them.
_NAMES = "ENOENT EACCES EPERM EROFS EISDIR ENOTDIR ENAMETOOLONG ELOOP ENXIO"
_OF_FILES = {getattr(errno, name) for name in _NAMES.split()}


def _error_of_a_file(error):
    """Return an ``InputError`` for a file that is missing or cannot be opened, or None.

    Only the chain of ``__cause__`` is searched, because an error in ``__context__`` may be unrelated.
    """
    while error is not None:
        if isinstance(error, OSError) and error.errno in _OF_FILES and error.filename not in (None, ""):
            name = os.fsdecode(error.filename)
            return InputError(f"{name}: {error.strerror}") if error.errno != errno.ENOENT or _is_given(name) else None
        error = error.__cause__
    return None


def _is_given(name):
    """Whether a file name may come from the user. For example, a missing ``ninja`` is not the user's mistake, because torch runs it."""
    words = sys.argv[1:]
    return os.sep in name or any(name in (word, word.partition("=")[2], *re.split("[=:,]", word)) for word in words)


def fairseq_command() -> str | None:
    """Return the name of the running fairseq command, or None in any other program.

    The console scripts are named ``fairseq-*``. For ``python -m fairseq_cli.eval_lm``, the result is ``fairseq-eval-lm``.
    """
    program = Path(sys.argv[0]) if sys.argv else Path()
    if program.parent.name == "fairseq_cli":
        return "fairseq-" + program.stem.replace("_", "-")
    return program.stem if program.stem.startswith("fairseq-") else None


def install_in_command():
    """Install ``print_in_one_line`` as exception hook if a fairseq command is running."""
    if fairseq_command():
        wrap(sys, "excepthook", print_in_one_line)


def print_in_one_line(previous, kind, error, traceback):
    """Exception hook: print an ``InputError`` as one line and end with status 2."""
    mistake, command = find_input_error(error), fairseq_command()
    if mistake is None or command is None:
        previous(kind, error, traceback)
        return
    print(f"{command}: error: {mistake}", file=sys.stderr)
    # After SystemExit the interpreter runs its exit functions and returns 2, argparse's status for errors.
    # In a process group torch's own hook calls this one, and SystemExit would suppress the line. The status is then 1.
    if getattr(sys.excepthook, "hook", None) is print_in_one_line:
        raise SystemExit(2)

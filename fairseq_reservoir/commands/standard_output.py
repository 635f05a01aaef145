"""Standard output that takes no more: a reader that has stopped, a full disk."""

import contextlib
import os
import sys
from collections.abc import Iterator

from ..errors import InputError


@contextlib.contextmanager
def writing() -> Iterator[None]:
    """Ends the command quietly where whoever reads has read enough, as ``| head`` has.

    Raises:
        InputError: it cannot be written, as on a full disk.
    """
    try:
        yield
    except OSError as error:
        # The interpreter writes what is left once more when it ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):
            sys.exit(0)
        raise InputError(f"standard output: cannot be written ({error.strerror})") from error

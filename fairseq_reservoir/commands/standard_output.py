"""Handle standard output that cannot be written: its reader has stopped, or the disk is full."""

import contextlib
import os
import sys
from collections.abc import Iterator

from ..errors import InputError


@contextlib.contextmanager
def writing() -> Iterator[None]:
    """End the command quietly when the reader has stopped reading, as ``| head`` does.

    Raises:
        InputError: it cannot be written, as on a full disk.
    """
    try:
        yield
    except OSError as error:
        # At its end the interpreter tries again to write the rest.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):
            sys.exit(0)
        raise InputError(f"standard output: cannot be written ({error.strerror})") from error

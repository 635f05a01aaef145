"""Handle errors of writing to standard output: the reader of a pipe has stopped, or the disk is full."""

import contextlib
import os
import sys
from collections.abc import Iterator

from ..errors import InputError


@contextlib.contextmanager
def writing() -> Iterator[None]:
    """End the command without a message if the reader of a pipe has stopped, as ``| head`` does.

    Raises:
        InputError: standard output cannot be written for a different reason, such as a full disk.
    """
    try:
        yield
    except OSError as error:
        # Otherwise the interpreter would try to write the rest again when it exits, and fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):
            sys.exit(0)
        raise InputError(f"standard output: cannot be written ({error.strerror})") from error

"""Files that are there whole or not at all."""

import os
from contextlib import contextmanager
from pathlib import Path

from .errors import InputError


def check_out(path: str, force: bool, suffix: str) -> None:
    """Refuses an output file that could not be written, before any work is done for it.

    Raises:
        InputError: ``path`` has another suffix, is a folder, lies in none, or exists and ``force`` is not given.
    """
    if Path(path).suffix != suffix:
        raise InputError(f"OUT {path}: the name must end in {suffix}")
    folder = Path(path).parent
    if not folder.is_dir() or not os.access(folder, os.W_OK | os.X_OK):
        raise InputError(f"OUT {path}: {folder} is no folder that can be written to")
    if Path(path).is_dir():
        raise InputError(f"OUT {path}: is a folder")
    if Path(path).exists() and not force:
        raise InputError(f"OUT {path}: exists; --force replaces it")


@contextmanager
def replacing(path: str):
    """Yields a temporary name beside ``path``; what was written there takes the place of ``path`` in one step.

    It reaches the disk before the name changes. If the body raises, ``path`` stays as it was and the temporary file is
    removed; a killed process leaves ``path`` as it was and ``path.<process>.tmp`` behind.

    Raises:
        InputError: the disk is full or refuses the file.
    """
    temporary = Path(f"{path}.{os.getpid()}.tmp")
    try:
        yield temporary
        sync(temporary)
        os.replace(temporary, path)
        sync(Path(path).parent)
    except OSError as error:
        raise InputError(f"OUT {path}: cannot be written ({error.strerror or error})") from error
    finally:
        temporary.unlink(missing_ok=True)


def sync(path) -> None:
    """Returns when a file, or the names in a folder, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

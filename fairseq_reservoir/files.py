"""Writes files so that a kill or a full disk leaves the old file or the new one, never a part."""

import os
import shutil
from collections.abc import Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from .errors import InputError


def no_file(what: str, path: str) -> InputError:
    """The error of a path, named ``what``, at which there is no file."""
    if Path(path).is_dir():
        return InputError(f"{what} {path}: is a folder; name a file in it")
    return InputError(f"{what} {path}: no such file")


def check_out(path: str, force: bool, suffix: str, *read: str) -> None:
    """Refuses an output file that could not be written, before any work is done for it.

    Args:
        read: files that must not be replaced by it, even with ``force``.

    Raises:
        InputError: ``path`` has another suffix, is a folder, lies in none, is one of ``read``, or exists and ``force`` is not given.
    """
    if not Path(path).name.endswith(suffix):
        raise InputError(f"OUT {path}: the name must end in {suffix}")
    if suffix == ".safetensors" and any("\udc80" <= c <= "\udcff" for c in str(path)):  # its writer takes UTF-8 alone
        raise InputError(f"OUT {path}: the name must be UTF-8")
    folder = Path(path).parent
    if not folder.is_dir() or not os.access(folder, os.W_OK | os.X_OK):
        raise InputError(f"OUT {path}: {folder} is no folder that can be written to")
    if Path(path).is_dir():
        raise InputError(f"OUT {path}: is a folder")
    if not Path(path).exists():
        return
    if any(Path(other).exists() and os.path.samefile(path, other) for other in read):
        raise InputError(f"OUT {path}: is an input; name another")
    if not force:
        raise InputError(f"OUT {path}: exists; --force replaces it")


@contextmanager
def replacing(path: str | Path, refusal: str = "OUT {path}: cannot be written ({why})"):
    """Yields a temporary name beside ``path``; what was written there takes the place of ``path`` in one step.

    It reaches the disk before the name changes. If the body raises, ``path`` stays as it was and the temporary file is
    removed; a killed process leaves ``path`` as it was and ``path.<process>.tmp`` behind.

    Args:
        refusal: what to say when the disk is full or refuses the file.

    Raises:
        InputError: it does.
    """
    temporary = temporary_name(path)
    try:
        claim(temporary)
        mode = temporary.stat().st_mode
        yield temporary
        os.chmod(temporary, mode)  # safetensors puts a file of its own there, which nobody else may read
        sync(temporary)
        os.replace(temporary, path)
        with suppress(OSError):  # the file is in place; some folders cannot be opened, or not synchronised
            sync(Path(path).parent)
    except Exception as error:
        _refuse(error, refusal, path)
        raise
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


@contextmanager
def replacing_together(paths: Sequence[str | Path], refusal: str = "OUT {path}: cannot be written ({why})"):
    """Yields a temporary name beside each of ``paths``; a reader of all ``paths`` never finds an old file beside a new one.

    The old files but the first are renamed to ``path.<process>.old`` before the first new file takes its place. So a kill leaves
    all old files, or all new ones, or some names without a file. Nothing is deleted before all new files are in place. If the
    body raises, all files stay as they were.

    Raises:
        InputError: the disk is full or refuses a file; ``refusal`` is the message.
    """
    temporaries, moved = [temporary_name(path) for path in paths], {}
    path: str | Path = paths[0]
    try:
        for path, temporary in zip(paths, temporaries):
            claim(temporary)
        yield temporaries
        for path, temporary in zip(paths, temporaries):
            sync(temporary)
        try:
            for path in paths[1:]:
                if os.path.lexists(path):
                    os.replace(path, old := Path(f"{path}.{os.getpid()}.old"))
                    moved[path] = old
            _sync_folders(paths)
            os.replace(temporaries[0], path := paths[0])
        except BaseException:
            for other, old in moved.items():
                os.replace(old, other)
            moved.clear()
            raise
        for path, temporary in zip(paths[1:], temporaries[1:]):
            os.replace(temporary, path)
        _sync_folders(paths)
        for old in moved.values():
            old.unlink()
    except Exception as error:
        _refuse(error, refusal, path)
        raise
    finally:
        for temporary in temporaries:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)


def _sync_folders(paths) -> None:
    for folder in {Path(path).parent for path in paths}:
        with suppress(OSError):  # some folders cannot be opened, or not synchronised
            sync(folder)


@contextmanager
def replacing_folder(folder: str, refusal: str = "OUT {path}: cannot be written ({why})"):
    """Yields the name of a folder beside ``folder``, to be made there; it takes the place of ``folder``, and is gone if the body raises.

    Raises:
        InputError: the disk is full or refuses it; ``refusal`` is what to say then.
    """
    temporary, old = temporary_name(Path(folder).absolute()), Path(f"{Path(folder).absolute()}.{os.getpid()}.old")
    try:
        yield temporary
        if os.path.exists(folder):
            os.replace(folder, old)
        try:
            os.replace(temporary, folder)
        except BaseException:
            if old.exists() and not os.path.exists(folder):
                os.replace(old, folder)
            raise
    except Exception as error:
        _refuse(error, refusal, folder)
        raise
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
        if os.path.exists(folder):
            shutil.rmtree(old, ignore_errors=True)


def temporary_name(path) -> Path:
    """The file that this process writes before it is renamed to ``path``; two processes that write the same do not meet."""
    return Path(f"{path}.{os.getpid()}.tmp")


def claim(temporary) -> None:
    """Makes a new, empty file at a temporary name; a link that somebody has put there is removed, not followed."""
    Path(temporary).unlink(missing_ok=True)
    os.close(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o666))


def _refuse(error: Exception, refusal: str, path) -> None:
    """Raises ``refusal`` where the system is behind an error, and returns otherwise."""
    cause = None if isinstance(error, InputError) else _error_of_the_system(error)
    if cause is not None:
        raise InputError(refusal.format(path=path, why=cause.strerror or cause)) from error


def _error_of_the_system(error) -> OSError | None:
    """The first OSError in a chain of causes: torch's writer may put another error on top."""
    while error is not None and not isinstance(error, OSError):
        error = error.__cause__ or error.__context__
    return error


def sync(path) -> None:
    """Returns when a file, or the names in a folder, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

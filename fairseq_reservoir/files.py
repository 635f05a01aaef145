"""Atomic writing of files and folders, and safe reading of paths that may not be regular files.

If the process is killed or the disk is full, the path has either the old file or the complete new file.
"""

import errno
import os
import shutil
import stat
from collections.abc import Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from .errors import InputError

_REFUSAL = "OUT {path}: cannot be written ({why})"


def check_file(what: str, path: str | Path, or_pipe: bool = False) -> None:
    """Refuse a path that is not a readable file.

    Args:
        what: the flag or argument that gave the path.
        path: the path.
        or_pipe: whether a pipe or device is also allowed. A pipe is not opened, because opening it could block.

    Raises:
        InputError: the path is missing, unreadable or a folder.
    """
    name = f"{what} {path}" if str(path) else f"{what} {str(path)!r}"
    try:
        mode = os.stat(path).st_mode
        if stat.S_ISREG(mode):
            os.close(os.open(path, os.O_RDONLY))
    except (FileNotFoundError, ValueError):  # ValueError: the name contains a null character
        raise InputError(f"{name}: no such file") from None
    except OSError as error:
        raise InputError(f"{name}: cannot be read ({error.strerror})") from error
    if stat.S_ISDIR(mode):
        raise InputError(f"{name}: is a folder; name a file in it")
    if not (stat.S_ISREG(mode) or or_pipe):
        raise InputError(f"{name}: not an ordinary file")


def check_name(what: str, path: str | Path) -> None:
    """Refuse a path that is too long for the file system, with or without the suffix of ``temporary_name``.

    Raises:
        InputError: the path is too long.
    """
    try:
        os.lstat(temporary_name(path))
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            raise InputError(f"{what} {path}: cannot be written ({error.strerror})") from error


def check_out(path: str, force: bool, suffix: str, *inputs: str, what: str = "OUT") -> None:
    """Refuse an output file that cannot be written, before any work is done.

    Args:
        path: the output file.
        force: whether an existing file may be replaced.
        suffix: the suffix that its name must have.
        inputs: input files. They must not be replaced, even with ``force``.
        what: the flag or argument that gave the path.

    Raises:
        InputError: ``path`` does not end in ``suffix``, is a folder, has no writable parent folder, is one of ``inputs``, or exists
            although ``force`` is false.
    """
    if not Path(path).name.endswith(suffix):
        raise InputError(f"{what} {path}: the name must end in {suffix}")
    if suffix == ".safetensors" and any("\udc80" <= c <= "\udcff" for c in str(path)):  # safetensors needs UTF-8
        raise InputError(f"{what} {path}: the name must be UTF-8")
    check_name(what, path)
    folder = Path(path).parent
    if not os.path.isdir(folder) or not os.access(folder, os.W_OK | os.X_OK):
        raise InputError(f"{what} {path}: {folder} is not a writable folder")
    if os.path.isdir(path):
        raise InputError(f"{what} {path}: is a folder")
    if not os.path.exists(path):
        return
    if any(os.path.exists(other) and os.path.samefile(path, other) for other in inputs):
        raise InputError(f"{what} {path}: is also an input file; choose another name")
    if not force:
        raise InputError(f"{what} {path}: exists; --force replaces it")


@contextmanager
def replacing(path: str | Path, refusal: str = _REFUSAL):
    """Context manager that replaces ``path`` atomically. It yields a temporary name to write to.

    On exit the file is synchronised to disk and renamed. If the body raises, ``path`` is unchanged and the temporary file is
    removed. If the process is killed, ``path`` is unchanged and the temporary file ``path.<process id>.tmp`` remains.

    Args:
        path: the file to write.
        refusal: message of the error, with the fields ``path`` and ``why``.

    Raises:
        InputError: the disk is full, or the system refuses to write the file.
    """
    with replacing_together([path], refusal) as (temporary,):
        yield temporary


@contextmanager
def replacing_together(paths: Sequence[str | Path], refusal: str = _REFUSAL):
    """Context manager that replaces several files together. It yields a temporary name for each of ``paths``.

    A reader never finds an old file together with a new one. All old files except the first are renamed to
    ``path.<process id>.old`` before the first new file is renamed to its path. After a kill, the files at the paths are all old or all
    new, and some may be missing. Old files are deleted only after all new files have been renamed. If the body raises, all files are
    unchanged.

    Args:
        paths: the files to write.
        refusal: message of the error, with the fields ``path`` and ``why``.

    Raises:
        InputError: the disk is full, or the system refuses to write a file.
    """
    temporaries, moved = [temporary_name(path) for path in paths], {}
    path: str | Path = paths[0]
    try:
        for path, temporary in zip(paths, temporaries):
            claim(temporary)
        modes = [temporary.stat().st_mode for temporary in temporaries]
        yield temporaries
        for path, temporary, mode in zip(paths, temporaries, modes):
            with suppress(OSError):  # some file systems refuse to change modes
                os.chmod(temporary, mode)  # safetensors creates files that only their owner can read
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
        with suppress(OSError):  # some folders cannot be opened or synchronised
            sync(folder)


@contextmanager
def replacing_folder(folder: str, refusal: str = _REFUSAL):
    """Context manager that replaces a folder. It yields a name, under which the body must create the new folder.

    On exit the new folder is renamed to ``folder``. If the body raises, the new folder is deleted.

    Raises:
        InputError: the disk is full, or the system refuses to write. ``refusal`` is the message.
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
    """Name under which a file is written before it is renamed to ``path``. It contains the process id, so no two processes share it."""
    return Path(f"{path}.{os.getpid()}.tmp")


def claim(temporary) -> None:
    """Create an empty file at a temporary name, after removing a file or link with this name. A link's target is unchanged."""
    Path(temporary).unlink(missing_ok=True)
    os.close(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o666))


def _refuse(error: Exception, refusal: str, path) -> None:
    """Raise ``refusal`` if an OSError caused ``error``; otherwise return."""
    cause = None if isinstance(error, InputError) else _os_error_in(error)
    if cause is not None:
        raise InputError(refusal.format(path=path, why=cause.strerror or cause)) from error


def _os_error_in(error) -> OSError | None:
    """Return the first OSError in an error's chain of causes. torch's writer may wrap an OSError in a different error."""
    while error is not None and not isinstance(error, OSError):
        error = error.__cause__ or error.__context__
    return error


def sync(path) -> None:
    """Synchronise a file, or the entries of a folder, to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def open_regular(path):
    """Open a regular file, or a link to a regular file, for reading bytes. Never opens a FIFO, a socket or a device.

    Raises:
        OSError: the file does not exist, is not a regular file, or cannot be opened.
    """
    _check_kind(os.stat(path))
    # After the check, a FIFO may replace the file. Without O_NONBLOCK, opening a FIFO would wait for a writer.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        _check_kind(os.fstat(descriptor))
        return open(descriptor, "rb")
    except OSError:
        os.close(descriptor)
        raise


def read_regular(path, most: int) -> bytes:
    """Read a regular file of at most ``most`` bytes.

    Raises:
        OSError: as in ``open_regular``, or the file has more than ``most`` bytes.
    """
    with open_regular(path) as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise OSError(errno.EFBIG, f"is larger than {most:,} bytes")
    return content


def read_text(path, most: int) -> str:
    """Read the text of a regular file. Bytes that are not UTF-8 become U+FFFD. Line ends stay unchanged.

    Raises:
        OSError: as in ``read_regular``.
    """
    return read_regular(path, most).decode("utf-8", "replace")


def regular(path) -> os.stat_result | None:
    """Return the status of a regular file or of a link to one; None if the path is anything else."""
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        return None
    return status if stat.S_ISREG(status.st_mode) else None


def fault_of_own_file(path, in_place: bool = True) -> str:
    """Reason not to write to a path, such as "is a link" or "is a FIFO"; "" for a regular file or a free name.

    Links and hard links are refused, because they may lead to a file outside our folder.

    Args:
        path: the path.
        in_place: whether the existing file will be opened for writing. If false, a new file will replace the existing file. Hard links
            are then allowed, because the old content stays available under the file's other name.

    Raises:
        OSError: the file's status cannot be read.
    """
    try:
        status = os.lstat(path)
    except FileNotFoundError:
        return ""
    return _fault(status) if in_place else _fault_of_kind(status)


def open_own_file(path, flags: int) -> int:
    """Open or create a regular file without hard links, and return its descriptor. Never follows a link or waits for a FIFO.

    Args:
        path: the file.
        flags: flags of ``os.open``, such as ``os.O_WRONLY | os.O_APPEND``.

    Raises:
        OSError: the path is not a regular file, the file has a hard link, or it cannot be opened.
    """
    if fault := fault_of_own_file(path):
        raise OSError(errno.EINVAL, fault)
    descriptor = os.open(path, flags | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)
    try:
        if fault := _fault(os.fstat(descriptor)):
            raise OSError(errno.EINVAL, fault)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def why(error: Exception) -> str:
    """Short reason of an error: the system's text without error number and file name."""
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


def why_unreadable(error: OSError) -> str:
    """Reason why a file could not be read: its kind, such as "is a FIFO", or "cannot be read (Permission denied)"."""
    reason = why(error)
    return reason if reason.startswith("is ") else f"cannot be read ({reason})"


_KINDS = {
    stat.S_IFDIR: "is a folder",
    stat.S_IFLNK: "is a link",
    stat.S_IFIFO: "is a FIFO",
    stat.S_IFSOCK: "is a socket",
    stat.S_IFCHR: "is a device",
    stat.S_IFBLK: "is a device",
}


def _fault_of_kind(status):
    return _KINDS.get(stat.S_IFMT(status.st_mode), "")


def _fault(status):
    return _fault_of_kind(status) or ("has a second name (a hard link)" if status.st_nlink > 1 else "")


def _check_kind(status):
    if kind := _KINDS.get(stat.S_IFMT(status.st_mode)):
        raise OSError(errno.EINVAL, kind)


def is_alive(process_id: int) -> bool:
    """Return whether any user of this machine has a process with this id. Return True for an id that is too large to check."""
    try:
        os.kill(process_id, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        pass
    return True

"""Writes files so that a kill or a full disk leaves the old file or the new one, never a part; reads files that may be of any kind."""

import errno
import os
import shutil
import stat
from collections.abc import Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from .errors import InputError


def check_file(what: str, path: str | Path, or_pipe: bool = False) -> None:
    """Refuses a path at which there is no file that this process can read.

    Args:
        what: the flag or argument that named it.
        or_pipe: whether a pipe or device will do too. It is not opened, because that could wait for ever.

    Raises:
        InputError: one line with ``what``, the path and the reason.
    """
    name = f"{what} {path}" if str(path) else f"{what} {str(path)!r}"
    try:
        mode = os.stat(path).st_mode
        if stat.S_ISREG(mode):
            os.close(os.open(path, os.O_RDONLY))
    except (FileNotFoundError, ValueError):  # the latter of a name with a null character
        raise InputError(f"{name}: no such file") from None
    except OSError as error:
        raise InputError(f"{name}: {cannot_be_read(error)}") from error
    if stat.S_ISDIR(mode):
        raise InputError(f"{name}: is a folder; name a file in it")
    if not (stat.S_ISREG(mode) or or_pipe):
        raise InputError(f"{name}: not an ordinary file")


def cannot_be_read(error: OSError) -> str:
    """The end of a message about a file that the system does not let this process read."""
    return f"cannot be read ({error.strerror})"


def check_name(what: str, path: str | Path) -> None:
    """Refuses a path that the system finds too long, or whose temporary name would be (see ``temporary_name``).

    Raises:
        InputError: one line with ``what``, the path and the reason.
    """
    try:
        os.lstat(temporary_name(path))
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            raise InputError(f"{what} {path}: cannot be written ({error.strerror})") from error


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
    check_name("OUT", path)
    folder = Path(path).parent
    if not os.path.isdir(folder) or not os.access(folder, os.W_OK | os.X_OK):
        raise InputError(f"OUT {path}: {folder} is no folder that can be written to")
    if os.path.isdir(path):
        raise InputError(f"OUT {path}: is a folder")
    if not os.path.exists(path):
        return
    if any(os.path.exists(other) and os.path.samefile(path, other) for other in read):
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
        with suppress(OSError):  # some file systems refuse to change modes
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


def open_regular(path):
    """A regular file, or one that a link leads to, open for reading bytes. A FIFO, a socket or a device is not opened.

    Raises:
        OSError: there is no such file, it is of another kind, or the system refuses it.
    """
    _check_kind(os.stat(path))
    # Somebody may put a FIFO there in between. Without O_NONBLOCK its opening would wait for a writer.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        _check_kind(os.fstat(descriptor))
        return open(descriptor, "rb")
    except OSError:
        os.close(descriptor)
        raise


def read_regular(path, most: int) -> bytes:
    """The content of a regular file of at most ``most`` bytes.

    Raises:
        OSError: as of ``open_regular``, or the file is larger.
    """
    with open_regular(path) as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise OSError(errno.EFBIG, f"is larger than {most:,} bytes")
    return content


def read_text(path, most: int) -> str:
    """The text of a regular file, each byte that is not UTF-8 as U+FFFD. Line ends stay as they are.

    Raises:
        OSError: as of ``read_regular``.
    """
    return read_regular(path, most).decode("utf-8", "replace")


def regular(path) -> os.stat_result | None:
    """Status of a regular file, or of the regular file behind a link; None if there is none."""
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        return None
    return status if stat.S_ISREG(status.st_mode) else None


def fault_of_own_file(path, in_place: bool = True) -> str:
    """Why we must not write a file: "is a link", "is a FIFO"; "" for a regular file or none.

    A link, also a hard link, leads to a file outside the folder that we write to.

    Args:
        in_place: the file is opened. Else another one takes its name, so that its other names, such as those in a backup, keep their text.

    Raises:
        OSError: the system refuses the question.
    """
    try:
        status = os.lstat(path)
    except FileNotFoundError:
        return ""
    return _fault(status) if in_place else _fault_of_kind(status)


def open_own_file(path, flags: int) -> int:
    """Open a regular file without another name, or make it, and return its descriptor. Never follows a link or waits for a FIFO.

    Args:
        flags: of ``os.open``, such as ``os.O_WRONLY | os.O_APPEND``.

    Raises:
        OSError: the file is of another kind, has another name, or is refused by the system.
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
    """Reason of an error in a few words: the system's own text, without number and file name."""
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


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
    return _fault_of_kind(status) or ("is one file with another name (a hard link)" if status.st_nlink > 1 else "")


def _check_kind(status):
    if kind := _KINDS.get(stat.S_IFMT(status.st_mode)):
        raise OSError(errno.EINVAL, kind)

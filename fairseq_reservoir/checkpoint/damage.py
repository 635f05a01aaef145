"""Detect corrupted checkpoints."""

import functools
import logging
import re
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..errors import InputError
from ..fairseq_repairs import archive
from . import export_file

logger = logging.getLogger(__name__)
# Every pickle of protocol 2 or later begins with this byte, and so does every file that torch.save wrote before version 1.6.
_PICKLE = b"\x80"


def refuse_damaged(path: str | Path, flag: str = "") -> None:
    """Refuse a truncated or altered checkpoint. The message names the newest intact checkpoint in the same folder.

    ``torch.load`` does not compare checksums, so it loads altered numbers without an error; see ``archive``. This function does not check
    exports, files in torch's format before version 1.6, and files of other programs. If a checkpoint has no checksums, damage cannot be
    detected, and a warning is logged.

    Args:
        path: path of a file. A missing file is not an error.
        flag: beginning of the message: the flag that named the file, and a space.

    Raises:
        InputError: the checkpoint is damaged.
    """
    path = Path(path)
    if not path.is_file():
        return
    if (fault := _describe(path)) is not None:
        raise _refusal(path, fault, flag)
    stat = path.stat()
    _warn_unless_verified(path, stat.st_size, stat.st_mtime_ns)


@contextmanager
def reading(path: str | Path) -> Iterator[None]:
    """Context manager for reading a checkpoint with fairseq. Refuses a corrupted file, and reports reading errors in one line.

    Raises:
        InputError: the file is corrupted, is not a checkpoint, or refers to classes that do not belong in a checkpoint.
    """
    refuse_damaged(path)
    try:
        yield
    except (InputError, OSError):
        raise
    except Exception as error:  # bytes that are not a pickle, or a user's own class, can raise any exception
        raise InputError(f"{path}: {_reason(error)}") from error


def _reason(error: Exception) -> str:
    text = " ".join(str(error).split())
    if found := re.search(r"(?:Unsupported global: GLOBAL|unsupported GLOBAL) (\S+)", text):
        return (
            f"not loaded: the file refers to {found[1][:80]}, which does not belong in a checkpoint and could run any program"
            " (see docs/files-from-others.md)"
        )
    text = (text.partition("WeightsUnpickler error: ")[2] or text).partition(" Check the documentation")[0]
    return f"not a checkpoint of fairseq ({type(error).__name__}: {text[:80]})"


def is_whole(path: Path) -> bool:
    """Return whether a file can be read and has no detectable damage."""
    try:
        return _describe(path) is None
    except OSError:
        return False


def _refusal(path: Path, what: str, flag: str) -> InputError:
    others = [other for other in path.parent.glob("checkpoint*.pt") if other.is_file() and other != path]
    others.sort(key=lambda other: other.stat().st_mtime, reverse=True)
    newest = next(filter(is_whole, others), None)
    how = (
        f"{newest} is the newest intact checkpoint in this folder (use it with --restore-file or --path)"
        if newest
        else "no other checkpoint in this folder is intact"
    )
    return InputError(f"{flag}{path}: a damaged checkpoint, {what}; {how}")


def _describe(path: Path) -> str | None:
    stat = path.stat()
    return _damage(path, stat.st_size, stat.st_mtime_ns)


@functools.lru_cache
def _damage(path: Path, size: int, changed: int) -> str | None:
    """Describe the damage of a file; None if there is none. The result is cached by path, size and time of the last change.

    Exports are not checked here, because their hash is compared when they are read. They must be excluded, because the first bytes of an
    export may look like those of an archive.
    """
    if export_file.is_export(path):
        return None
    with open(path, "rb") as stream:
        return archive.damage(stream) if archive.is_archive(stream) else None


@functools.lru_cache
def _warn_unless_verified(path: Path, size: int, changed: int) -> None:
    """Warn if a checkpoint has no checksums. Calls with the same path, size and time of the last change warn only once."""
    if export_file.is_export(path):
        return
    with open(path, "rb") as stream:
        begin = stream.read(2)
    if begin[:1] == _PICKLE:
        why = "torch's format before version 1.6 has no checksums"
    elif begin == b"PK" and not _has_checksums(path):
        why = "it was written without checksums"
    else:
        return
    logger.warning("%s: cannot be checked for damage, because %s; compare the file with its source", path, why)


def _has_checksums(path: Path) -> bool:
    """Return whether an intact archive has this plugin's checksum, or the CRC-32 checksums that torch writes by default."""
    with zipfile.ZipFile(path) as found:
        return bool(found.comment) or any(record.CRC for record in found.infolist())

"""Checkpoints whose bytes are no longer those that were written."""

import functools
import logging
import mmap
import re
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..errors import InputError
from ..fairseq_repairs import archive
from . import packed_file

logger = logging.getLogger(__name__)
# Every pickle of protocol 2 or later begins with this byte, and so does every file of torch.save before version 1.6.
_PICKLE = b"\x80"


def refuse_damaged(path: str | Path, flag: str = "") -> None:
    """Refuses a checkpoint that has been cut short or of which a bit has changed, and names the newest one beside it that is whole.

    ``torch.load`` loads a tensor with another sign or exponent without a word, though a checksum of it stands in the file; see
    ``archive``. What is no such archive (an export, an older format, another program's file) is let pass. One warning per file
    names a checkpoint without any checksum: damage in it cannot be found.

    Args:
        path: of a file, or of nothing.
        flag: what it was given to, with a blank after it.

    Raises:
        InputError: one line.
    """
    path = Path(path)
    if not path.is_file():
        return
    if not is_whole(path):
        raise _refusal(path, _what(path), flag)
    stat = path.stat()
    _warn_unless_verified(path, stat.st_size, stat.st_mtime_ns)


@contextmanager
def reading(path: str | Path) -> Iterator[None]:
    """While fairseq reads a checkpoint: refuses a damaged one before, and says in one line what torch or fairseq finds in it.

    Raises:
        InputError: as of ``refuse_damaged``; the file asks for what is no part of a checkpoint; it is none.
    """
    refuse_damaged(path)
    try:
        yield
    except (InputError, OSError):
        raise
    except Exception as error:  # bytes that are no pickle, or somebody's own, end in errors of any kind
        raise InputError(f"{path}: {_reason(error)}") from error


def _reason(error: Exception) -> str:
    text = " ".join(str(error).split())
    if asked := re.search(r"(?:Unsupported global: GLOBAL|unsupported GLOBAL) (\S+)", text):
        return (
            f"not loaded: it asks for {asked[1][:80]}, which is no part of a checkpoint and may run any program"
            " (see docs/files-from-others.md)"
        )
    text = (text.partition("WeightsUnpickler error: ")[2] or text).partition(" Check the documentation")[0]
    return f"not a checkpoint of fairseq ({type(error).__name__}: {text[:80]})"


def is_whole(path: Path) -> bool:
    """Whether nothing is known against a file."""
    return _what(path) is None


def _is_usable(path: Path) -> bool:
    """Whether it can be read, and is whole."""
    try:
        return is_whole(path)
    except OSError:
        return False


def _refusal(path: Path, what: str | None, flag: str) -> InputError:
    others = [other for other in path.parent.glob("checkpoint*.pt") if other.is_file() and other != path]
    others.sort(key=lambda other: other.stat().st_mtime, reverse=True)
    newest = next(filter(_is_usable, others), None)
    how = (
        f"{newest} is the newest beside it that is whole (--restore-file, --path)"
        if newest
        else "no other beside it is whole"
    )
    return InputError(f"{flag}{path}: a damaged checkpoint, {what}; {how}")


def _what(path: Path) -> str | None:
    stat = path.stat()
    return _damage(path, stat.st_size, stat.st_mtime_ns)


@functools.lru_cache
def _damage(path: Path, size: int, changed: int) -> str | None:
    """What is wrong with a file of this size and time; reading it once is enough.

    An export begins with a length, which may look like the beginning of an archive; its own hashes are compared when it is read.
    """
    if path.suffix == packed_file.SUFFIX:
        return None
    with open(path, "rb") as stream:
        data = memoryview(mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)) if size else b""
    return archive.damage(data) if archive.is_archive(data) else None


@functools.lru_cache
def _warn_unless_verified(path: Path, size: int, changed: int) -> None:
    """Warn, once for a file of this size and time, that an undamaged-looking checkpoint has no checksums."""
    with open(path, "rb") as stream:
        begin = stream.read(2)
    if begin[:1] == _PICKLE and path.suffix != packed_file.SUFFIX:
        why = "torch's format of before version 1.6 has no checksums"
    elif begin == b"PK" and path.suffix != packed_file.SUFFIX and not _has_checksums(path):
        why = "it was written without checksums"
    else:
        return
    logger.warning("%s: cannot be checked for damage, because %s; compare the file with its source", path, why)


def _has_checksums(path: Path) -> bool:
    """Whether a whole archive has our seal as its comment, or a CRC-32 for each tensor, which torch writes unless told otherwise."""
    with zipfile.ZipFile(path) as found:
        return bool(found.comment) or any(record.CRC for record in found.infolist())

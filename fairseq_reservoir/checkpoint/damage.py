"""Checkpoints whose bytes are no longer those that were written."""

import functools
import pickle
import zipfile
from contextlib import contextmanager
from pathlib import Path

from ..errors import InputError

_CHUNK = 2**20


def refuse_damaged(path, flag: str = "") -> None:
    """Refuses a checkpoint that has been cut short or of which a bit has changed, and names the newest one beside it that is whole.

    ``torch.save`` writes a zip archive with a checksum of every tensor, which ``torch.load`` does not look at: it loads a tensor with
    another sign or exponent without a word. What is no such archive (an export, an older format, another program's file) is let pass.

    Args:
        path: of a file, or of nothing.
        flag: what it was given to, with a blank after it.

    Raises:
        InputError: one line.
    """
    path = Path(path)
    if path.is_file() and not is_whole(path):
        raise _refusal(path, _what(path), flag)


@contextmanager
def reading(path):
    """While torch reads a checkpoint: refuses a damaged one before, and in one line too what only torch finds, in the list of contents.

    Raises:
        InputError: as of ``refuse_damaged``.
    """
    refuse_damaged(path)
    try:
        yield
    except (EOFError, RuntimeError, pickle.UnpicklingError) as error:
        if Path(path).is_file() and _is_archive(path) and "PytorchStreamReader" in str(error):
            raise _refusal(Path(path), "its list of contents is not as it was written", "") from error
        raise


def is_whole(path) -> bool:
    """Whether nothing is known against a file."""
    return _what(path) is None


def _refusal(path, what, flag):
    others = sorted(path.parent.glob("checkpoint*.pt"), key=lambda other: other.stat().st_mtime, reverse=True)
    newest = next((other for other in others if other != path and is_whole(other)), None)
    how = f"{newest} is the newest beside it that is whole (--restore-file, --path)" if newest else "no other beside it is whole"
    return InputError(f"{flag}{path}: a damaged checkpoint, {what}; {how}")


def _is_archive(path):
    with open(path, "rb") as stream:
        return stream.read(2) in (b"PK", b"") or zipfile.is_zipfile(path)


def _what(path):
    stat = path.stat()
    return _damage(path, stat.st_size, stat.st_mtime_ns)


@functools.lru_cache
def _damage(path, size, changed):
    """What is wrong with a file of this size and time; reading it once is enough."""
    if not _is_archive(path):
        return None
    entry = None
    try:
        with zipfile.ZipFile(path) as archive:
            for entry in archive.infolist():
                with archive.open(entry) as stream:
                    while entry.CRC and stream.read(_CHUNK):  # 0 where torch was told to leave checksums out
                        pass
    except Exception:  # a changed byte may be taken for a length, a name, a method: errors of any kind
        return f"{entry.filename.partition('/')[2]} in it is not as it was written" if entry else "cut short or overwritten"
    return None

"""Append a seal, the SHA-256 of all bytes, to the zip archive of ``torch.save``. Find damage in archives with and without a seal.

``torch.load`` does not compare checksums. The seal is stored in the comment of the zip file, which torch ignores. The seal detects damage,
not forgery. Archives of other programs have no seal, so the CRC-32 of each record is checked instead. An archive that lost only its seal
is detected as damaged, because its end record still contains the length of the comment.
"""

import hashlib
import struct
import zipfile
import zlib
from typing import BinaryIO

import torch

_SEAL = b"fairseq_reservoir SHA-256 "
_SEAL_SIZE = len(_SEAL) + 64
# The end record of a zip file. Its last field is the length of the comment that follows.
_END, _END_MAGIC = struct.Struct("<4s4H2IH"), b"PK\5\6"
_CHUNK = 2**24
_IS_FOLDER = 0x10  # in the external attributes of an entry; torch does not read the data of such an entry
_CUT_SHORT = "cut short or overwritten"
_CONTENTS = "its list of records has changed since it was written"
# NotImplementedError is a RuntimeError.
_UNREADABLE = (zipfile.BadZipFile, zlib.error, struct.error, RuntimeError, ValueError, OverflowError, EOFError)


def save(state, stream) -> None:
    """Write an object as ``torch.save`` does, and append the seal.

    Args:
        state: the object.
        stream: any object with ``write`` and ``flush``.
    """
    sealing = _Sealing(stream)
    torch.save(state, sealing)  # type: ignore[arg-type]  # it only writes to it and flushes
    sealing.finish()


class _Sealing:
    """Stream that hashes all written bytes. The stream delays the end record of the archive, to insert the length of the comment."""

    def __init__(self, stream):
        self.stream, self.hash, self.last = stream, hashlib.sha256(), b""

    def write(self, data):
        data = memoryview(data).cast("B")
        if len(data) >= _END.size:
            self._pass_on(self.last)
            self._pass_on(data[: -_END.size])
            self.last = bytes(data[-_END.size :])
        else:
            both = self.last + bytes(data)
            self._pass_on(both[: -_END.size])
            self.last = both[-_END.size :]
        return len(data)

    def flush(self):
        self.stream.flush()

    def finish(self):
        *fields, _ = _END.unpack(self.last)
        self._pass_on(_END.pack(*fields, _SEAL_SIZE))
        self.stream.write(_SEAL + self.hash.hexdigest().encode())
        self.flush()

    def _pass_on(self, data):
        if len(data):
            self.hash.update(data)
            self.stream.write(data)


def is_archive(stream: BinaryIO) -> bool:
    """Whether a file begins or ends like an archive, or is empty. Damaged archives also count as archives."""
    end, sealed_end = _ends(stream)
    return _at(stream, 0, 2) in (b"", b"PK") or _END_MAGIC in (end[:4], sealed_end[:4])


def damage(stream: BinaryIO) -> str | None:
    """Describe the damage in an archive that ``torch.save`` or ``save`` has written. Return None if there is no damage."""
    end, sealed_end = _ends(stream)
    if end.startswith(_END_MAGIC) and end.endswith(b"\0\0"):  # no comment
        return _damaged_record(stream)
    if not sealed_end.startswith(_END_MAGIC):
        return _CUT_SHORT
    size = stream.seek(0, 2) - _SEAL_SIZE
    if _at(stream, size, _SEAL_SIZE) == _SEAL + _sha256(stream, size).encode():
        return None
    return _damaged_record(stream) or "its SHA-256 has changed since it was written"


def _ends(stream):
    """Read the bytes at the two possible positions of the end record: in an archive without a comment, and in a sealed archive."""
    size = stream.seek(0, 2)
    return [_at(stream, size - behind - _END.size, _END.size) for behind in (0, _SEAL_SIZE)]


def _at(stream, place, count):
    if place < 0:
        return b""
    stream.seek(place)
    return stream.read(count)


def _sha256(stream, size):
    stream.seek(0)
    digest = hashlib.sha256()
    for start in range(0, size, _CHUNK):
        digest.update(stream.read(min(_CHUNK, size - start)))
    return digest.hexdigest()


def _damaged_record(stream):
    """Describe the first record with a wrong CRC-32, or the damage in the list of records. Return None if there is no damage."""
    try:
        with zipfile.ZipFile(stream) as archive:
            entries = archive.infolist()
            if any(map(_is_changed, entries)):
                return _CONTENTS
            has_checksums = any(entry.CRC for entry in entries)  # torch can write 0 for all
            name = archive.testzip() if has_checksums else None
    except _UNREADABLE:
        return _CONTENTS
    return name and f"its record {name.partition('/')[2]} has changed since it was written"


def _is_changed(entry):
    """Whether an entry of the record list is one that torch never writes: a folder, compressed data, or a negative offset."""
    return entry.external_attr & _IS_FOLDER or entry.compress_size != entry.file_size or entry.header_offset < 0

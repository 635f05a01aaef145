"""Seal the archive that ``torch.save`` writes with the SHA-256 of its bytes, and find damage in archives with and without a seal.

``torch.load`` compares no checksum. The seal is the comment of the zip file, which torch ignores. It detects damage, not forgery. A
program that loads an archive and saves it again leaves the seal out; then the CRC-32 of each record is compared. If somebody cuts the
seal off, the length of the comment stays, and that is damage.
"""

import hashlib
import struct
import zipfile
import zlib
from typing import BinaryIO

import torch

_SEAL = b"fairseq_reservoir SHA-256 "
_SEAL_SIZE = len(_SEAL) + 64
# The last record of a zip file; the last of its fields is the length of the comment behind it.
_END, _END_MAGIC = struct.Struct("<4s4H2IH"), b"PK\5\6"
_CHUNK = 2**24
_IS_FOLDER = 0x10  # in the external attributes of an entry; torch does not read the data of such an entry
_CUT_SHORT = "cut short or overwritten"
_CONTENTS = "its list of contents is not as it was written"
_UNREADABLE = (
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
    NotImplementedError,
    RuntimeError,
    ValueError,
    OverflowError,
    EOFError,
)


def save(state, stream) -> None:
    """``torch.save`` into a stream, with a seal.

    Args:
        state: as of ``torch.save``.
        stream: anything with ``write``; nothing is read from it.
    """
    sealing = _Sealing(stream)
    torch.save(state, sealing)  # type: ignore[arg-type]  # it only writes to it and flushes
    sealing.finish()


class _Sealing:
    """Hashes everything that is written through it. The last record is held back, because it has the length of the comment."""

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
    """Whether a file is or was an archive: it begins or ends as one, or is empty."""
    end, sealed_end = _ends(stream)
    return _at(stream, 0, 2) in (b"", b"PK") or _END_MAGIC in (end[:4], sealed_end[:4])


def damage(stream: BinaryIO) -> str | None:
    """The damage in an archive that ``torch.save`` or ``save`` wrote, or None.

    Args:
        stream: the file, opened for reading.
    """
    end, sealed_end = _ends(stream)
    if end.startswith(_END_MAGIC) and end.endswith(b"\0\0"):  # no comment
        return _damaged_record(stream)
    if not sealed_end.startswith(_END_MAGIC):
        return _CUT_SHORT
    size = stream.seek(0, 2) - _SEAL_SIZE
    if _at(stream, size, _SEAL_SIZE) == _SEAL + _sha256(stream, size).encode():
        return None
    return _damaged_record(stream) or "its SHA-256 differs from that of the written file"


def _ends(stream):
    """The last record of an archive without a comment, and that of a sealed one."""
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
    """The first record of a zip file with a wrong CRC-32, or damage of its list of records, or None."""
    try:
        with zipfile.ZipFile(stream) as archive:
            entries = archive.infolist()
            if any(map(_is_changed, entries)):
                return _CONTENTS
            has_checksums = any(entry.CRC for entry in entries)  # torch can write 0 for all
            name = archive.testzip() if has_checksums else None
    except _UNREADABLE:
        return _CONTENTS
    return name and f"{name.partition('/')[2]} in it is not as it was written"


def _is_changed(entry):
    """Whether an entry of the list is one that torch does not write: a folder, compressed data, or data before the file."""
    return entry.external_attr & _IS_FOLDER or entry.compress_size != entry.file_size or entry.header_offset < 0

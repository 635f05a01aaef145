"""The archive that ``torch.save`` writes, field by field, and a seal on it: the SHA-256 of all its bytes.

torch believes an archive's directory: with one bit of it changed it leaves a tensor unread, as memory happened to be. So
here every header is made again as torch makes it and compared. The seal is the archive's comment, which torch passes over.
It detects damage, not forgery. Who loads an archive and saves it again leaves the seal out; who cuts it off leaves the
length of a comment behind, and that is damage.
"""

import hashlib
import struct
import zlib

import torch

_SEAL = b"fairseq_reservoir SHA-256 "
_SEAL_SIZE = len(_SEAL) + 64
# Local header, directory entry, and the three records at the end: its wide form, where that is, its short form.
_LOCAL, _ENTRY = struct.Struct("<4s5H3I2H"), struct.Struct("<4s6H3I5H2I")
_WIDE_END, _LOCATOR, _END = struct.Struct("<4sQ2H2I4Q"), struct.Struct("<4sIQI"), struct.Struct("<4s4H2IH")
_TAIL_SIZE = _WIDE_END.size + _LOCATOR.size + _END.size
# A size or a place from here on stands in 8 bytes of its own, and this in the place of it.
_WIDE = 2**32 - 1
_UTF8, _DESCRIBED_BEHIND = 0x800, 0x8


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
    """A stream that hashes what goes through it; the archive's last record waits, since it says that a comment follows."""

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


def is_archive(data) -> bool:
    """Whether the bytes of a file were those of an archive, at one of its ends at least; an empty file was something once."""
    ends = (len(data) - _END.size, len(data) - _END.size - _SEAL_SIZE)
    return not len(data) or data[:2] == b"PK" or any(at >= 0 and data[at : at + 4] == b"PK\5\6" for at in ends)


def damage(data) -> str | None:
    """The damage in the bytes of an archive, where they are not as ``torch.save`` or ``save`` wrote them, None if nothing is.

    Args:
        data: bytes or a memoryview of them.
    """
    data = memoryview(data)
    if _ends_without_comment(data):
        return _difference(data, 0)
    if data[-_SEAL_SIZE:] == _SEAL + hashlib.sha256(data[:-_SEAL_SIZE]).hexdigest().encode():
        return None
    return _difference(data, _SEAL_SIZE) or "its SHA-256 is not that of what was written"


def _ends_without_comment(data):
    return data[-_END.size :][:4] == b"PK\5\6" and data[-2:] == b"\0\0"


_CONTENTS = "its list of contents is not as it was written"


class _Different(Exception):
    """Says what."""


def _difference(data, comment):
    try:
        _compare(data, comment)
    except _Different as found:
        return str(found)
    except struct.error:  # an offset beyond the file
        return "cut short or overwritten"
    return None


def _compare(data, comment):
    """Makes all headers again from what the directory says, and compares; the data itself by its checksums."""
    tail = len(data) - comment - _TAIL_SIZE
    if tail < 0 or data[tail + _TAIL_SIZE - _END.size :][:4] != b"PK\5\6":
        raise _Different("cut short or overwritten")
    *_, count, size, start = _WIDE_END.unpack_from(data, tail)
    _expect(data, tail, _tail(count, size, start, comment))
    if start + size != tail:
        raise _Different(_CONTENTS)
    offset, at, checked = 0, start, []
    for _ in range(count):
        offset, at, found = _record(data, offset, at)
        checked.append(found)
    if (offset, at) != (start, tail):
        raise _Different(_CONTENTS)
    # Told to leave checksums out, torch writes 0 for all.
    wrong = [name for name, crc, right in checked if not right]
    if wrong and any(crc for _, crc, _ in checked):
        raise _Different(f"{wrong[0]} in it is not as it was written")


def _record(data, offset, at):
    """Compares the record at ``offset`` with its entry at ``at``; where the next ones are, and (name, checksum, whether it is right)."""
    fields = _ENTRY.unpack_from(data, at)
    (time, date, crc), size, name_size = fields[5:8], fields[9], fields[10]
    name = bytes(data[at + _ENTRY.size :][:name_size])
    if size == _WIDE:
        (size,) = struct.unpack_from("<Q", data, at + _ENTRY.size + name_size + 4)
    flags = _UTF8 | (_DESCRIBED_BEHIND if size else 0)
    wide, wide_here = _wide_fields(size, size, offset), _wide_fields(size, 0, offset)
    short = [min(size, _WIDE)] * 2
    written = [0, 0, flags, 0, time, date, crc, *short, name_size, len(wide), 0, 0, 0, 0, min(offset, _WIDE)]
    at = _expect(data, at, _ENTRY.pack(b"PK\1\2", *written) + name + wide)

    extra_size = _LOCAL.unpack_from(data, offset)[-1]
    padding = extra_size - len(wide) - 4
    if padding < 0:
        raise _Different(_CONTENTS)
    header = _LOCAL.pack(b"PK\3\4", 0, flags, 0, time, date, 0, 0, 0, name_size, extra_size)
    offset = _expect(data, offset, header + name + wide_here + b"FB" + struct.pack("<H", padding) + b"Z" * padding)
    right = zlib.crc32(data[offset : offset + size]) == crc
    offset += size
    if size:
        offset = _expect(data, offset, struct.pack("<4sI2Q" if wide else "<4s3I", b"PK\7\10", crc, size, size))
    return offset, at, (name.decode(errors="replace").partition("/")[2], crc, right)


def _wide_fields(size, packed_size, offset):
    """The extra field of a record beyond 4 GiB; before the record, its packed size is not known yet."""
    values = [size, packed_size] * (size >= _WIDE) + [offset] * (offset >= _WIDE)
    return struct.pack(f"<2H{len(values)}Q", 1, 8 * len(values), *values) if values else b""


def _tail(count, size, start, comment):
    short = min(count, 2**16 - 1), min(count, 2**16 - 1), min(size, _WIDE), min(start, _WIDE)
    return (
        _WIDE_END.pack(b"PK\6\6", 44, 0x31E, 45, 0, 0, count, count, size, start)
        + _LOCATOR.pack(b"PK\6\7", 0, start + size, 1)
        + _END.pack(b"PK\5\6", 0, 0, *short, comment)
    )


def _expect(data, offset, expected):
    """Compares; the offset behind."""
    behind = offset + len(expected)
    if data[offset:behind] != expected:
        raise _Different(_CONTENTS)
    return behind

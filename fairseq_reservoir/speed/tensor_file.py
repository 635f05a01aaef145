"""A file of tensors that only grows, shared by the processes of one machine.

A header says what the file is of. A record is written numbers first, its own header last, under a lock of the system, which a killed
process loses: what it left begins no record and is written over. Each read compares key and checksums, so that damage reads
as "not there". The system's page cache is the memory that processes share; it is read, not mapped, since a mapped file that somebody
truncates kills its readers.
"""

import contextlib
import fcntl
import hashlib
import json
import logging
import os
import stat
import struct
import zlib
from collections.abc import Iterator

from torch import Tensor

from ..errors import InputError
from ..random_tensors.digest import raw_bytes
from . import kept_tensor

logger = logging.getLogger(__name__)

MAGIC = b"frprefx1"
# Of the file: magic, SHA-256 of the text, its length; the text is JSON. The first record begins at START.
_HEAD = struct.Struct("<8s32sI")
START = 4096
# Of a record: magic, key, how to put the tensor together, bytes, CRC-32 of these; CRC-32 of all this. Records begin at multiples of _ALIGN.
_RECORD = struct.Struct(f"<4s32s{kept_tensor.SIZE}sQI")
_CRC = struct.Struct("<I")
_SIZE = _RECORD.size + _CRC.size
_BEGIN, _ALIGN = b"rec1", 64


class TensorFile:
    """Tensors by key in one file; a tensor once written never changes.

    Args:
        path: of the file, which is made if it is not there; an empty one is taken as new.
        about: what the tensors are of, by the name under which a refusal speaks of it.
        limit: bytes that the file may have.
        renews: whether ``begin`` may throw away what a file holds of another prefix, if that file was written by one that may, too.

    Raises:
        InputError: the file is another kind of file, of something else, or cannot be opened.
    """

    def __init__(self, path: str, about: dict[str, str], limit: int, renews: bool = False) -> None:
        self.path, self.limit, self.renews = path, limit, renews
        kind = "with a freeze schedule" if renews else "without a freeze schedule"
        self.about = about | {"kind of run": kind}
        self.index: dict[bytes, int] = {}
        self.end, self.full, self.head = START, False, b""
        with self._said():
            self.file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK, 0o666)
            if not stat.S_ISREG(os.fstat(self.file).st_mode):
                raise InputError(f"--freeze-cache {path}: is no ordinary file; name another one")
            with self._locked():
                self._compare(self._read_head(), self.about)

    def begin(self, prefix: str) -> None:
        """From now on the tensors are of the prefix with this hash.

        Raises:
            InputError: the file is of something else; which, is said.
        """
        wanted = self.about | {"frozen prefix": prefix}
        with self._said(), self._locked():
            held = self._read_head()
            if held and held.get("frozen prefix") != prefix and self.renews:
                logger.info("--freeze-cache %s: begins anew, since the frozen prefix is another", self.path)
                held = {}
            self._compare(held, wanted)
            if not held:
                text = json.dumps(wanted, sort_keys=True).encode()
                os.ftruncate(self.file, 0)
                self._write(_HEAD.pack(MAGIC, hashlib.sha256(text).digest(), len(text)) + text, 0)
            os.ftruncate(self.file, max(START, os.fstat(self.file).st_size))
            self.head, self.index, self.end, self.full = os.pread(self.file, _HEAD.size, 0), {}, START, False
            self._find_new()
        if self.index:
            logger.info("--freeze-cache %s: has %d batches", self.path, len(self.index))

    def _compare(self, held, wanted):
        for name, here in wanted.items() if held else ():
            there = held.get(name)
            if there != here:
                raise InputError(
                    f"--freeze-cache {self.path}: was made with another {name} ({str(there)[:60]}, here {here[:60]}); delete it or name "
                    "another file"
                )

    def get(self, key: bytes) -> tuple[bytes, Tensor] | None:
        """What was put there by any process, or None; damaged is not there."""
        with contextlib.suppress(OSError):
            if key not in self.index:
                self._find_new()
            place = self.index.get(key)
            if place is None:
                return None
            head = self._head_at(place)
            if head and head[0] == key:
                flat = kept_tensor.empty(head[1])
                view = raw_bytes(flat)
                if head[2] == len(view) == os.preadv(self.file, [view], place + _SIZE) and zlib.crc32(view) == head[3]:
                    return head[1], flat
            del self.index[key]
            logger.warning("--freeze-cache %s: damaged at byte %d; that batch is worked out anew", self.path, place)
        return None

    def put(self, key: bytes, about: bytes, flat: Tensor) -> None:
        """Writes a tensor, unless somebody has or there is no room, of which one line is said."""
        if self.full:
            return
        try:
            with self._locked():
                self._find_new()
                size = os.fstat(self.file).st_size
                is_ours = os.pread(self.file, _HEAD.size, 0) == self.head and size > self.end - _ALIGN
                if key in self.index or not is_ours:
                    return  # another process has gone on to another prefix, or somebody has emptied the file
                if self.end + _SIZE + flat.nbytes > self.limit:
                    self._stop(f"--freeze-cache-mib {self.limit >> 20} is reached")
                    return
                data = raw_bytes(flat)
                head = _RECORD.pack(_BEGIN, key, about, len(data), zlib.crc32(data))
                try:
                    os.ftruncate(self.file, min(self.end, size))  # what a killed process has left
                    self._write(data, self.end + _SIZE)
                    self._write(head + _CRC.pack(zlib.crc32(head)), self.end)
                except OSError:
                    os.ftruncate(self.file, self.end)
                    raise
                self._find_new()
        except OSError as error:
            self._stop(f"it cannot be written ({error.strerror or error})")

    def _stop(self, why):
        self.full = True
        logger.warning(
            "--freeze-cache %s: %s; goes on with %d batches, others are worked out each time",
            self.path,
            why,
            len(self.index),
        )

    def _find_new(self) -> None:
        """Looks at the records behind the last known one."""
        size = os.fstat(self.file).st_size
        while head := self._head_at(self.end):
            past = self.end + _SIZE + head[2]
            if past > size:
                return
            self.index.setdefault(head[0], self.end)
            self.end = -(-past // _ALIGN) * _ALIGN

    def _head_at(self, place) -> tuple[bytes, bytes, int, int] | None:
        """(key, how to put it together, bytes, checksum) of the record that begins there, if one does."""
        data = os.pread(self.file, _SIZE, place)
        if len(data) < _SIZE or _CRC.unpack(data[-_CRC.size :])[0] != zlib.crc32(data[: -_CRC.size]):
            return None
        begin, *head = _RECORD.unpack(data[: -_CRC.size])
        return tuple(head) if begin == _BEGIN else None

    def _read_head(self) -> dict[str, str]:
        """What the file is of; nothing of a new one, or of one whose first writer was killed at its first bytes."""
        data = os.pread(self.file, START, 0)
        whole = len(data) >= _HEAD.size
        magic, digest, length = _HEAD.unpack(data[: _HEAD.size]) if whole else (data[: len(MAGIC)], b"", 0)
        text = data[_HEAD.size : _HEAD.size + length]
        if whole and magic == MAGIC and hashlib.sha256(text).digest() == digest:
            return json.loads(text)
        if len(data) == START or not MAGIC.startswith(magic):
            raise InputError(
                f"--freeze-cache {self.path}: is not a file of kept batches, and is left as it is; name another one"
            )
        return {}

    def _write(self, data, place) -> None:
        view = memoryview(data)
        while view:
            written = os.pwrite(self.file, view, place)
            view, place = view[written:], place + written

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        fcntl.flock(self.file, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(self.file, fcntl.LOCK_UN)

    @contextlib.contextmanager
    def _said(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise InputError(
                f"--freeze-cache {self.path}: cannot be opened and written ({error.strerror or error})"
            ) from error

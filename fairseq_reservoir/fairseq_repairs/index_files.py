"""Check binarised data: the index PREFIX.idx must be complete, and PREFIX.bin must have the size that the index declares.

``MMIDIDX`` is the index of ``--dataset-impl mmap``: a header of 26 bytes, the lengths of all sentences (int32), and the offsets of their
first bytes in the .bin file (int64). ``TNTIDX`` is the index of ``lazy`` and ``cached``: a header of 48 bytes, the offsets of the
sentences' shapes, the offsets of their first tokens, and the shapes (all int64). The .bin file of this index stores each token id plus 1.
"""

import functools
import os
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NoReturn

import numpy as np
from fairseq.data import indexed_dataset
from fairseq.data.huffman import HuffmanMMapIndex
from fairseq.data.indexed_dataset import IndexedDataset, MMapIndexedDataset, _code_to_dtype
from torch import distributed

from ..errors import InputError
from .repair import repair, wrap

MAKE_IT = "create it with fairseq-preprocess"
_MMAP, _LEGACY = MMapIndexedDataset.Index._HDR_MAGIC, IndexedDataset._HDR_MAGIC
_IMPLEMENTATIONS = {_MMAP: ("mmap",), _LEGACY: ("cached", "lazy")}
_CHUNK = 2**20  # sentences, or tokens, that are compared at once
MOST_SCANNED = 2**30  # bytes of token ids that one command compares with dictionaries
# Errors of formats that are not checked here: text that is not UTF-8, a damaged .idx of huffman.
_OF_OTHER_FORMATS = (ValueError, AssertionError, struct.error, KeyError, EOFError)


@repair("damaged-index")
def refuse_damaged_index():
    """Refuse damaged binarised files in one line when they are opened.

    fairseq does not check lengths and offsets. With a damaged file, a training may fail in the middle, or use up all memory because of a
    wrong length. With this repair, rank 0 checks every sentence, and the other ranks check the header and the sizes of the files.
    """

    def make_dataset(original, path, impl, *args, **kwargs):
        if impl in ("mmap", "cached", "lazy") and all(os.path.isfile(path + suffix) for suffix in (".idx", ".bin")):
            is_first = not (distributed.is_available() and distributed.is_initialized() and distributed.get_rank())
            # "cached" is also fairseq's default, so the user may not have given it.
            check_once(path, None if impl == "cached" else impl, is_first)
        try:
            return original(path, impl, *args, **kwargs)
        except InputError:
            raise
        except _OF_OTHER_FORMATS as error:
            raise InputError(f"{path}: not data of --dataset-impl {impl} ({type(error).__name__}: {error})") from error

    wrap(indexed_dataset, "make_dataset", make_dataset)


@dataclass(frozen=True)
class _Index:
    """The header of an index file.

    Attributes:
        magic: ``_MMAP`` or ``_LEGACY``.
        dtype: type of the token ids in the .bin file.
        count: number of sentences.
        start: size of the header in bytes.
    """

    prefix: str
    magic: bytes
    dtype: np.dtype
    count: int
    start: int

    @property
    def lowest(self) -> int:
        """Return the number that stands for token id 0 in the .bin file."""
        return 1 if self.magic == _LEGACY else 0

    def array(self, dtype: type, before: int, count: int) -> np.ndarray:
        """Memory-map ``count`` numbers of the index, starting ``before`` bytes after the header."""
        return np.memmap(f"{self.prefix}.idx", dtype, "r", self.start + before, (count,))


def check(prefix: str, implementation: str | None = None, every_sentence: bool = True) -> None:
    """Check the index of one side of a split, and the size of its .bin file. Files of other formats are not checked.

    Args:
        prefix: path without .idx and .bin. The two files must exist.
        implementation: the value of ``--dataset-impl``, if given.
        every_sentence: also check that the offsets and lengths of all sentences fit each other. This takes about 0.1 s for 10 million
            sentences.

    Raises:
        InputError: the files are damaged, or do not fit ``implementation``.
    """
    index = _read_header(prefix)
    if index is None:
        return
    _check_implementation(index, implementation)
    found = os.path.getsize(f"{prefix}.bin")
    expected = (_mmap_bytes if index.magic == _MMAP else _legacy_bytes)(index, every_sentence)
    if found != expected:
        raise InputError(
            f"{prefix}.bin: is damaged (it has {found:,} bytes, but {prefix}.idx describes {expected:,}); {MAKE_IT}, together with its .idx"
        )


@dataclass
class IdScan:
    """Check token ids against dictionaries. ``left`` is the number of bytes that may still be read, for all files of a command together."""

    left: int = MOST_SCANNED

    def check(self, prefix: str, entries: int, dictionary: str) -> None:
        """Call ``check_ids`` for at most a quarter of the remaining bytes, so that a large training file leaves bytes for other files."""
        self.left -= check_ids(prefix, entries, dictionary, self.left // 4)


def check_ids(prefix: str, entries: int, dictionary: str, most: int = MOST_SCANNED) -> int:
    """Check that the token ids at the start of a .bin file are in the dictionary. Call ``check`` before.

    Args:
        prefix: path without .idx and .bin.
        entries: number of entries of the dictionary, with its special symbols.
        dictionary: file name of the dictionary.
        most: maximum number of bytes to read.

    Returns:
        The number of bytes read.

    Raises:
        InputError: an id is not in the dictionary. The embedding would fail on it in the middle of a training.
    """
    index = _read_header(prefix)
    if index is None:
        return 0
    width = index.dtype.itemsize
    total = min(os.path.getsize(f"{prefix}.bin"), most) // width
    if not total:
        return 0
    tokens = np.memmap(f"{prefix}.bin", index.dtype, "r", 0, (total,))
    for start, end in _chunks(len(tokens)):
        chunk = tokens[start:end]
        is_too_low = (index.lowest or index.dtype.kind == "i") and chunk.min() < index.lowest
        if is_too_low or chunk.max() >= entries + index.lowest:
            place = int(np.argmax((chunk < index.lowest) | (chunk >= entries + index.lowest)))
            raise InputError(
                f"{prefix}.bin: token {start + place + 1:,} has id {int(chunk[place]) - index.lowest}, but {dictionary} has"
                f" {entries:,} entries; the file is damaged, or was binarised with another dictionary"
            )
    return total * width


def check_once(prefix: str, implementation: str | None, every_sentence: bool) -> None:
    """Call ``check``. Do nothing if the files were checked before and still have the same sizes and time stamps."""
    if implementation and (index := _read_header(prefix)):
        _check_implementation(index, implementation)
    found = [os.stat(prefix + suffix) for suffix in (".idx", ".bin")]
    _checked(prefix, every_sentence, *(number for one in found for number in (one.st_size, one.st_mtime_ns)))


@functools.lru_cache(maxsize=1024)
def _checked(prefix: str, every_sentence: bool, *stamps: int) -> None:
    check(prefix, None, every_sentence)


forget: Callable[[], None] = _checked.cache_clear


def _check_implementation(index: _Index, implementation: str | None) -> None:
    allowed = _IMPLEMENTATIONS[index.magic]
    if implementation in ("mmap", "cached", "lazy") and implementation not in allowed:
        raise InputError(
            f"--dataset-impl {implementation}: {index.prefix}.idx needs --dataset-impl {' or '.join(allowed)}"
        )


def _read_header(prefix: str) -> _Index | None:
    """Return the header, or None for an index of ``--dataset-impl huffman``."""
    with open(f"{prefix}.idx", "rb") as stream:
        head = stream.read(48)
    size = os.path.getsize(f"{prefix}.idx")
    if head.startswith(HuffmanMMapIndex._HDR_MAGIC[:8]):
        return None
    if head.startswith(_MMAP) and len(head) >= 26:
        version, code, count = struct.unpack_from("<QBQ", head, len(_MMAP))
        start, expected = 26, 26 + 12 * count
    elif head.startswith(_LEGACY) and len(head) == 48:
        version, code, item_size, count, shapes = struct.unpack_from("<QQQQQ", head, len(_LEGACY))
        start, expected = 48, 48 + 16 * (count + 1) + 8 * shapes
    else:
        _refuse(
            prefix,
            f"it begins with {head[:9]!r}, but an index begins with a complete header that starts with 'MMIDIDX' or 'TNTIDX'",
        )
    dtype = np.dtype(_code_to_dtype.get(code, np.float64))
    if version != 1:
        _refuse(prefix, f"version {version}; only version 1 exists")
    if dtype.kind not in "iu":
        _refuse(prefix, f"its code {code} does not stand for an integer data type")
    if size != expected:
        _refuse(
            prefix,
            f"it has {size:,} bytes, but its header describes {count:,} sentences, which need {expected:,} bytes",
        )
    if head.startswith(_LEGACY) and shapes != count:
        _refuse(prefix, f"its header describes {count:,} sentences, but {shapes:,} lengths")
    if head.startswith(_LEGACY) and item_size != dtype.itemsize:
        _refuse(prefix, f"its header describes tokens of type {dtype}, but of {item_size} bytes")
    return _Index(prefix, head[: len(_MMAP)] if start == 26 else _LEGACY, dtype, count, start)


def _mmap_bytes(index: _Index, every_sentence: bool) -> int:
    """Return the number of bytes that the .bin file must have, computed from all sentences or only from the last sentence."""
    sizes, places = index.array(np.int32, 0, index.count), index.array(np.int64, 4 * index.count, index.count)
    address, width = 0, index.dtype.itemsize
    for start, end in _chunks(index.count) if every_sentence else _last(index.count):
        lengths = sizes[start:end].astype(np.int64)
        begins = places[start:end]
        if not every_sentence:
            address = int(begins[0])
        expected = address + width * (np.cumsum(lengths) - lengths)
        _compare(index, start, lengths, begins, expected)
        address = int(expected[-1] + width * lengths[-1])
    return address


def _legacy_bytes(index: _Index, every_sentence: bool) -> int:
    """Return the number of bytes that the .bin file must have, computed from all sentences or only from the last offset."""
    count, row = index.count, 8 * (index.count + 1)
    shapes, begins = index.array(np.int64, 0, count + 1), index.array(np.int64, row, count + 1)
    if not every_sentence or not count:
        return int(begins[-1]) * index.dtype.itemsize
    sizes = index.array(np.int64, 2 * row, count)
    address = 0
    for start, end in _chunks(count):
        lengths = sizes[start:end]
        _compare(index, start, lengths, shapes[start:end], np.arange(start, end))
        ends = address + np.cumsum(lengths)
        _compare(index, start, lengths, begins[start:end], ends - lengths)
        address = int(ends[-1])
    _compare(index, count - 1, sizes[-1:], np.array([shapes[-1], begins[-1]]), np.array([count, address]))
    return address * index.dtype.itemsize


def _compare(index: _Index, start: int, lengths: np.ndarray, found: np.ndarray, expected: np.ndarray) -> None:
    wrong = np.flatnonzero(lengths < 0)
    if not wrong.size:
        wrong = np.flatnonzero(found != expected)
    if wrong.size:
        number = min(start + int(wrong[0]) + 1, index.count)
        _refuse(index.prefix, f"the offset or length of sentence {number:,} does not fit the other sentences")


def _chunks(count: int) -> Iterator[tuple[int, int]]:
    for start in range(0, count, _CHUNK):
        yield start, min(start + _CHUNK, count)


def _last(count: int) -> list[tuple[int, int]]:
    return [(count - 1, count)] if count else []


def _refuse(prefix: str, what: str) -> NoReturn:
    raise InputError(f"{prefix}.idx: is damaged ({what}); {MAKE_IT}, together with its .bin")

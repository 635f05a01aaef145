"""Repairs of reading a DATA folder: damaged dictionaries and binarised files are refused in one line, for every task."""

import os
import struct
from typing import Any

from fairseq.data import Dictionary, indexed_dataset
from torch import distributed

from ..errors import InputError
from . import index_files
from .repair import repair, wrap

_MAKE_IT = "fairseq-preprocess writes it"
_BYTE_ORDER_MARK = "\ufeff"
_OVERWRITE = "#fairseq:overwrite"
# Errors of formats that are not checked here: text that is not UTF-8, a damaged .idx of huffman.
_OF_OTHER_FORMATS = (ValueError, AssertionError, struct.error, KeyError, EOFError)


@repair("damaged-dictionaries")
def refuse_damaged_dictionaries():
    """Refuse a damaged dictionary in one line.

    fairseq raises errors of four classes. Some of them quote a line without its number, and some do not name the file. fairseq accepts an
    empty file, an empty word and NUL bytes. Negative counts are allowed, because vocabularies of SentencePiece's BPE have the counts 0,
    -1, -2, ...
    """

    def add_from_file(original, dictionary, f):
        if not isinstance(f, str):
            return original(dictionary, f)
        known = list(dictionary.symbols)
        try:
            original(dictionary, f)
        except (OSError, MemoryError):
            raise
        except Exception as error:  # fairseq raises a plain Exception for text that is not UTF-8
            raise InputError(f"{f}: {_fault(f, known, error)}") from error
        _check_entries(f, dictionary, len(known))

    wrap(Dictionary, "add_from_file", add_from_file)


@repair("damaged-index")
def refuse_damaged_index():
    """Refuse damaged binarised files in one line when they are opened.

    fairseq does not check lengths and offsets. Some errors occur in the middle of a training, and a huge length uses all memory. Rank 0
    checks every sentence. The other ranks check the header and the size of the files.
    """

    def make_dataset(original, path, impl, *args, **kwargs):
        if impl in ("mmap", "cached", "lazy") and all(os.path.isfile(path + suffix) for suffix in (".idx", ".bin")):
            is_first = not (distributed.is_available() and distributed.is_initialized() and distributed.get_rank())
            # "cached" is also fairseq's default, so the user may not have given it.
            given = None if impl == "cached" else impl
            index_files.check_once(path, given, is_first)
        try:
            return original(path, impl, *args, **kwargs)
        except InputError:
            raise
        except _OF_OTHER_FORMATS as error:
            raise InputError(f"{path}: not data of --dataset-impl {impl} ({type(error).__name__}: {error})") from error

    wrap(indexed_dataset, "make_dataset", make_dataset)


def _fault(path: str, known: list[str], error: Exception) -> str:
    """Describe the line of a dictionary at which fairseq failed."""
    with open(path, "rb") as stream:
        data = stream.read()
    try:
        data.decode()
    except UnicodeDecodeError as fault:
        number = data.count(b"\n", 0, fault.start) + 1
        return f"line {number} is not UTF-8 (byte 0x{data[fault.start]:02x}); {_MAKE_IT}"
    seen = set(known)
    with open(path, encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            word, blank, count = line.rstrip().rpartition(" ")
            if overwrites := count == _OVERWRITE:
                word, blank, count = word.rpartition(" ")
            if not blank or not _is_number(count):
                return f"line {number}, {_shown(line)}, must be a word and its count; {_MAKE_IT}"
            if word in seen and not overwrites:
                return f"line {number} repeats {_shown(word)}; each word needs one line ({_OVERWRITE} after the count replaces a word)"
            seen.add(word)
    return f"not a dictionary ({' '.join(str(error).split())}); {_MAKE_IT}"


def _check_entries(path: str, dictionary: Any, known: int) -> None:
    """Refuse corrupted entries that fairseq accepts."""
    if len(dictionary.symbols) == known:
        raise InputError(f"{path}: an empty dictionary; {_MAKE_IT}")
    for word, count in zip(dictionary.symbols[known:], dictionary.count[known:]):
        if not word or "\0" in word:
            raise InputError(
                f"{path}: the word {_shown(word)} with count {str(count)[:20]} is empty or has a NUL byte; {_MAKE_IT}"
            )
    if dictionary.symbols[known].startswith(_BYTE_ORDER_MARK):
        raise InputError(
            f"{path}: begins with a byte-order mark, which would be a part of its first word; save the file without it"
        )


def _is_number(text: str) -> bool:
    try:
        int(text)
    except ValueError:
        return False
    return True


def _shown(text: str) -> str:
    return repr(text.rstrip("\n")[:80])

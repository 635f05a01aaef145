"""Repairs of dictionary files: refuse damaged files in one line, and keep overwrite marks when a dictionary is written."""

from itertools import islice
from typing import Any

from fairseq.data import Dictionary

from ..errors import InputError
from .index_files import MAKE_IT
from .repair import repair, wrap

_OVERWRITE = "#fairseq:overwrite"
_BYTE_ORDER_MARK = "\ufeff"


@repair("damaged-dictionaries")
def refuse_damaged_dictionaries():
    """Refuse a damaged dictionary in one line.

    For a damaged dictionary, fairseq raises errors of four classes. Some messages quote a line without its number, and others do not name
    the file. fairseq also accepts an empty file, an empty word and NUL bytes, which this repair refuses. Negative counts are allowed,
    because vocabularies of SentencePiece's BPE have the counts 0, -1, -2, ...
    """

    def add_from_file(original, dictionary, f):
        if not isinstance(f, str):
            return original(dictionary, f)
        known = len(dictionary.symbols)
        try:
            original(dictionary, f)
        except (OSError, MemoryError):
            raise
        except Exception as error:  # fairseq raises a plain Exception for text that is not UTF-8
            # Each line that fairseq accepts adds one symbol.
            raise InputError(f"{f}: {_fault(f, len(dictionary.symbols) - known, error)}") from error
        _check_entries(f, dictionary, known)

    wrap(Dictionary, "add_from_file", add_from_file)


def _fault(path: str, accepted: int, error: Exception) -> str:
    """Describe the line of a dictionary at which fairseq failed. fairseq had accepted the first ``accepted`` lines."""
    with open(path, "rb") as stream:
        data = stream.read()
    try:
        data.decode()
    except UnicodeDecodeError as fault:
        number = data.count(b"\n", 0, fault.start) + 1
        return f"line {number} is not UTF-8 (byte 0x{data[fault.start]:02x}); {MAKE_IT}"
    with open(path, encoding="utf-8") as lines:
        line = next(islice(lines, accepted, None), "")
    if isinstance(error, ValueError):
        return f"line {accepted + 1}, {_shown(line)}, must be a word and its count; {MAKE_IT}"
    if isinstance(error, RuntimeError):
        word = line.rstrip().rpartition(" ")[0]
        return f"line {accepted + 1} repeats {_shown(word)}; remove the line, or add {_OVERWRITE} at its end to replace the earlier word"
    return f"not a dictionary ({' '.join(str(error).split())}); {MAKE_IT}"


def _check_entries(path: str, dictionary: Any, known: int) -> None:
    """Refuse corrupted entries that fairseq accepts. The dictionary had ``known`` symbols before the file was read."""
    if len(dictionary.symbols) == known:
        raise InputError(f"{path}: an empty dictionary; {MAKE_IT}")
    for word, count in zip(dictionary.symbols[known:], dictionary.count[known:]):
        if not word or "\0" in word:
            raise InputError(
                f"{path}: the word {_shown(word)} with count {str(count)[:20]} is empty or has a NUL byte; {MAKE_IT}"
            )
    if dictionary.symbols[known].startswith(_BYTE_ORDER_MARK):
        raise InputError(
            f"{path}: begins with a byte-order mark, which would become part of the first word; save the file without the mark"
        )


def _shown(text: str) -> str:
    return repr(text.rstrip("\n")[:80])


@repair("overwritten-words")
def keep_overwrite_flags():
    """Write ``#fairseq:overwrite`` after a word that occurs twice in a dictionary (fairseq #3705).

    With this mark, a dictionary FILE may repeat a word such as ``<s>``. ``fairseq-preprocess --srcdict FILE`` reads the mark, but writes a
    dictionary without the mark. No command can read this dictionary ("Duplicate word found"). To repair ``fairseq-preprocess``, give it
    the plugin with ``--user-dir``.
    """

    def _save(original, dictionary, f, kv_iterator):
        return original(dictionary, f, _with_flags(dictionary, kv_iterator))

    wrap(Dictionary, "_save", _save)


def _with_flags(dictionary, lines):
    before = set(dictionary.symbols[: dictionary.nspecial])
    for word, count in lines:
        yield word, f"{count} {_OVERWRITE}" if word in before else count
        before.add(word)

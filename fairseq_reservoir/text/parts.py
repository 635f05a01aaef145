"""The text parts of an export: dictionaries and what cuts text into their words, packed into one row of bytes.

The parts stand one after the other, the source dictionary, the target dictionary unless it is the same, and the SentencePiece model or
the BPE codes, and are compressed together by LZMA2 (a dictionary and the model that cut its words repeat each other). Its settings
are fixed here and not read from a file, so none can ask for more memory than they do; what unfolds is at most ``MOST_BYTES``.

In the description of an export, ``text`` says what they are: ``languages``, ``pieces`` (one of ``KINDS``), ``tokenizer``,
``dash_splits``, ``lowercase``, the bytes of each of the ``parts``, and the SHA-256 of them all. A dictionary is its words, a line each,
without fairseq's four special symbols and without the counts, which nothing reads after training.
"""

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from ..errors import InputError

KINDS = ("words", "sentencepiece", "byte_pairs")
TOKENIZERS = ("moses",)
MOST_BYTES = 2**24
MOST_WORDS = 2**20
_SIDES = ("source", "target")
_PIECES = "pieces"
_MEMORY = 2**23  # how far back the compressor looks
_LANGUAGE = re.compile(r"[\w.-]{1,40}")  # becomes a part of file names


@dataclass(frozen=True)
class TextParts:
    """What turns text into the words of a model's dictionaries, and back.

    Attributes:
        languages: of source and target, as in en, de.
        source, target: the words of the dictionaries after fairseq's four special symbols.
        kind: what cuts words into pieces: nothing (``words``), SentencePiece, or codes of byte pair encoding.
        model: of SentencePiece, or the codes; empty for ``words``.
        tokenizer: ``moses``, or empty.
        dash_splits: whether that tokenizer takes words apart at dashes.
        lowercase: whether text is in lower case before it is cut.
    """

    languages: tuple[str, str]
    source: tuple[str, ...]
    target: tuple[str, ...]
    kind: str = "words"
    model: bytes = b""
    tokenizer: str = ""
    dash_splits: bool = True
    lowercase: bool = False

    def dictionary(self, side: str) -> tuple[str, ...]:
        return self.source if side == "source" else self.target


def pack(text: TextParts) -> tuple[dict[str, Any], bytes]:
    """The description of text parts, and their bytes.

    Raises:
        InputError: they are larger than any model's.
    """
    contents = {"source": _as_lines(text.source)}
    if text.target != text.source:
        contents["target"] = _as_lines(text.target)
    if text.model:
        contents[_PIECES] = text.model
    row = b"".join(contents.values())
    for language in text.languages:
        if not _LANGUAGE.fullmatch(language):
            raise InputError(f"--with-text: {language!r} is no name of a language, as en or de")
    if len(row) > MOST_BYTES or max(len(text.source), len(text.target)) > MOST_WORDS:
        raise InputError(
            f"--with-text: {len(row):,} bytes of dictionaries and pieces, {max(len(text.source), len(text.target)):,} words; an"
            f" export carries at most {MOST_BYTES:,} and {MOST_WORDS:,}"
        )
    described = {
        "languages": list(text.languages),
        "pieces": text.kind,
        "tokenizer": text.tokenizer,
        "dash_splits": text.dash_splits,
        "lowercase": text.lowercase,
        "parts": {name: len(part) for name, part in contents.items()},
        "sha256": hashlib.sha256(row).hexdigest(),
    }
    lzma = _lzma("--with-text needs")
    return described, lzma.compress(row, format=lzma.FORMAT_RAW, filters=_filters(lzma))


def unpack(path: str | Path, described: Any, packed: bytes | memoryview) -> TextParts:
    """The text parts that ``pack`` was given.

    Raises:
        InputError: the description is not one of these bytes, or of more than an export carries, which is seen before memory is
            taken; a dictionary holds what no dictionary can.
    """
    if not _is_description(described):
        _refuse(path, "not a description of text parts")
    sizes = described["parts"]
    if sum(sizes.values()) > MOST_BYTES:
        _refuse(path, f"{sum(sizes.values()):,} bytes; at most {MOST_BYTES:,} are read")
    row = _unfolded(path, packed, sum(sizes.values()))
    if hashlib.sha256(row).hexdigest() != described["sha256"]:
        _refuse(path, "their SHA-256 differs")
    contents, start = {}, 0
    for name in (*_SIDES, _PIECES):
        contents[name] = row[start : start + sizes.get(name, 0)]
        start += sizes.get(name, 0)
    source = _words(path, "source", contents["source"])
    return TextParts(
        languages=(described["languages"][0], described["languages"][1]),
        source=source,
        target=_words(path, "target", contents["target"]) if "target" in sizes else source,
        kind=described["pieces"],
        model=contents[_PIECES],
        tokenizer=described["tokenizer"],
        dash_splits=described["dash_splits"],
        lowercase=described["lowercase"],
    )


def _as_lines(words: tuple[str, ...]) -> bytes:
    return "".join(f"{word}\n" for word in words).encode()


def _is_description(described: Any) -> bool:
    if type(described) is not dict:
        return False
    languages, sizes, kind = described.get("languages"), described.get("parts"), described.get("pieces")
    return (
        type(languages) is list
        and len(languages) == 2
        and all(type(name) is str and _LANGUAGE.fullmatch(name) for name in languages)
        and type(sizes) is dict
        and sizes.keys() <= {*_SIDES, _PIECES}
        and all(type(size) is int and size >= 0 for size in sizes.values())
        and "source" in sizes
        and kind in KINDS
        and (_PIECES in sizes) == (kind != "words")
        and described.get("tokenizer") in ("", *TOKENIZERS)
        and type(described.get("dash_splits")) is bool
        and type(described.get("lowercase")) is bool
        and type(described.get("sha256")) is str
    )


def _unfolded(path: str | Path, packed: bytes | memoryview, size: int) -> bytes:
    lzma = _lzma(f"{path}: carries text; reading it needs")
    decompressor = lzma.LZMADecompressor(format=lzma.FORMAT_RAW, filters=_filters(lzma))
    try:
        row: bytes = decompressor.decompress(packed, max_length=size + 1)
    except lzma.LZMAError as error:
        _refuse(path, f"not what was compressed ({error})")
    if len(row) != size or not decompressor.eof or decompressor.unused_data:
        _refuse(path, f"not {size:,} bytes when they are unfolded")
    return row


def _words(path: str | Path, side: str, lines: bytes) -> tuple[str, ...]:
    """The words of a dictionary, none of which could break a line or be read as two."""
    if lines.count(b"\n") > MOST_WORDS:
        _refuse(path, f"more than {MOST_WORDS:,} words in the {side} dictionary")
    try:
        *words, rest = lines.decode().split("\n")
    except UnicodeDecodeError as error:
        _refuse(path, f"the {side} dictionary is not UTF-8 ({error.reason})")
    if rest or unfit_word(words):
        _refuse(path, f"the {side} dictionary has a word twice, an empty one or one with a blank in it")
    return tuple(words)


def unfit_word(words: Iterable[str]) -> tuple[str, str] | None:
    """The first word of a dictionary that its lines cannot hold, and why."""
    seen: set[str] = set()
    for word in words:
        if word in seen:
            return word, " twice"
        if word.split() != [word]:
            return word, ", which is not one word"
        seen.add(word)
    return None


def _filters(lzma: Any) -> list[dict[str, int]]:
    return [{"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME, "dict_size": _MEMORY}]


def _lzma(what: str) -> Any:
    """Python's module, which a Python built without its library lacks."""
    try:
        import lzma
    except ImportError as error:
        raise InputError(f"{what} Python's module lzma, which this Python was built without") from error
    return lzma


def _refuse(path: str | Path, what: str) -> NoReturn:
    raise InputError(f"{path}: its text parts are not usable: {what}")

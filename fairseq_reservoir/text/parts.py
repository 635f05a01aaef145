"""Text parts of an export: dictionaries and the SentencePiece model or BPE codes, packed into one byte string.

The parts are concatenated in this order: source dictionary, target dictionary (unless it equals the source dictionary), subword model
(SentencePiece model or BPE codes). LZMA2 compresses all parts together, because a dictionary and its subword model contain much of the
same text. The compressor's settings are constants of this module, and at most ``MOST_BYTES`` are decompressed. This limits the memory
that a forged file can occupy.

The entry ``text`` in an export's description has the keys ``languages``, ``pieces`` (one of ``KINDS``), ``tokenizer``,
``dash_splits``, ``lowercase``, ``parts`` (the size of each part in bytes) and ``sha256`` (of all parts together). A dictionary has
one symbol per line, without fairseq's four special symbols and without counts. Counts are not needed after training.
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
MOST_SYMBOLS = 2**20
_SIDES = ("source", "target")
_PIECES = "pieces"
_MEMORY = 2**23  # dictionary size of the compressor in bytes
_LANGUAGE = re.compile(r"[\w.-]{1,40}")  # used in file names


@dataclass(frozen=True)
class TextParts:
    """Dictionaries of a model, and the settings to convert text into dictionary symbols and back.

    Attributes:
        languages: source and target language, such as en, de.
        source, target: symbols of the dictionaries, without fairseq's four special symbols.
        kind: the subword model, one of ``KINDS``. ``words`` means that words are not split.
        model: the SentencePiece model or the BPE codes; empty for ``words``.
        tokenizer: ``moses``, or empty.
        dash_splits: whether the tokenizer splits words at dashes.
        lowercase: whether text is converted to lower case before it is tokenized.
    """

    languages: tuple[str, str]
    source: tuple[str, ...]
    target: tuple[str, ...]
    kind: str = "words"
    model: bytes = b""
    tokenizer: str = ""
    dash_splits: bool = True
    lowercase: bool = False


def pack(text: TextParts) -> tuple[dict[str, Any], bytes]:
    """Return the description of the text parts, and the compressed bytes.

    Raises:
        InputError: the parts are too large, or a language has an invalid name.
    """
    contents = {"source": _as_lines(text.source)}
    if text.target != text.source:
        contents["target"] = _as_lines(text.target)
    if text.model:
        contents[_PIECES] = text.model
    row = b"".join(contents.values())
    for language in text.languages:
        if not _LANGUAGE.fullmatch(language):
            raise InputError(
                f"--with-text: language {language!r} must have 1 to 40 letters, digits or characters of ._- (such as en or de)"
            )
    if len(row) > MOST_BYTES or max(len(text.source), len(text.target)) > MOST_SYMBOLS:
        raise InputError(
            f"--with-text: the text parts have {len(row):,} bytes, and a dictionary has {max(len(text.source), len(text.target)):,}"
            f" symbols; an export can store at most {MOST_BYTES:,} bytes, and {MOST_SYMBOLS:,} symbols in each dictionary"
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
    """Inverse of ``pack``.

    Raises:
        InputError: the description does not fit the bytes, a dictionary is invalid, or the parts are too large. Sizes are
            checked before memory is allocated.
    """
    if not _is_description(described):
        _refuse(path, "their description is invalid")
    sizes = described["parts"]
    if sum(sizes.values()) > MOST_BYTES:
        _refuse(path, f"they have {sum(sizes.values()):,} bytes, more than the limit of {MOST_BYTES:,}")
    row = _decompressed(path, packed, sum(sizes.values()))
    if hashlib.sha256(row).hexdigest() != described["sha256"]:
        _refuse(path, "their SHA-256 differs from the one in the description")
    contents, start = {}, 0
    for name in (*_SIDES, _PIECES):
        contents[name] = row[start : start + sizes.get(name, 0)]
        start += sizes.get(name, 0)
    source = _symbols(path, "source", contents["source"])
    return TextParts(
        languages=(described["languages"][0], described["languages"][1]),
        source=source,
        target=_symbols(path, "target", contents["target"]) if "target" in sizes else source,
        kind=described["pieces"],
        model=contents[_PIECES],
        tokenizer=described["tokenizer"],
        dash_splits=described["dash_splits"],
        lowercase=described["lowercase"],
    )


def _as_lines(symbols: tuple[str, ...]) -> bytes:
    return "".join(f"{symbol}\n" for symbol in symbols).encode()


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


def _decompressed(path: str | Path, packed: bytes | memoryview, size: int) -> bytes:
    lzma = _lzma(f"{path}: has text parts; reading them needs")
    decompressor = lzma.LZMADecompressor(format=lzma.FORMAT_RAW, filters=_filters(lzma))
    try:
        row: bytes = decompressor.decompress(packed, max_length=size + 1)
    except lzma.LZMAError as error:
        _refuse(path, f"they are corrupted: {error}")
    if len(row) != size or not decompressor.eof or decompressor.unused_data:
        _refuse(path, f"the decompressed parts do not have {size:,} bytes")
    return row


def _symbols(path: str | Path, side: str, lines: bytes) -> tuple[str, ...]:
    """Read and check the symbols of a dictionary."""
    if lines.count(b"\n") > MOST_SYMBOLS:
        _refuse(path, f"the {side} dictionary has more than {MOST_SYMBOLS:,} symbols")
    try:
        *symbols, rest = lines.decode().split("\n")
    except UnicodeDecodeError as error:
        _refuse(path, f"the {side} dictionary is not UTF-8: {error.reason}")
    if rest or find_invalid_symbol(symbols):
        _refuse(path, f"the {side} dictionary has a symbol twice, an empty symbol or a symbol with white space")
    return tuple(symbols)


def find_invalid_symbol(symbols: Iterable[str]) -> tuple[str, str] | None:
    """Find the first symbol of a dictionary that occurs twice, is empty or contains white space.

    Returns:
        The symbol, and the words that complete an error message about it, such as ``" twice"``. None if all symbols are valid.
    """
    seen: set[str] = set()
    for symbol in symbols:
        if symbol in seen:
            return symbol, " twice"
        if symbol.split() != [symbol]:
            return symbol, ", which is not one word"
        seen.add(symbol)
    return None


def _filters(lzma: Any) -> list[dict[str, int]]:
    return [{"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME, "dict_size": _MEMORY}]


def _lzma(what: str) -> Any:
    """Import Python's module lzma. The module is missing if Python was built without the C library liblzma.

    Args:
        what: beginning of the error message, such as "--with-text needs".
    """
    try:
        import lzma
    except ImportError as error:
        raise InputError(f"{what} Python's module lzma, but this Python was built without it") from error
    return lzma


def _refuse(path: str | Path, reason: str) -> NoReturn:
    raise InputError(f"{path}: the text parts of the export are not usable ({reason})")

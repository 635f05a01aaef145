"""Words cut into pieces by codes of byte pair encoding, as subword-nmt and fastBPE cut them, without either.

A word is its characters, the last one with ``</w>``; of all neighbours that are a code the earliest code is merged, wherever it
stands in the word, until there is none (Sennrich et al., ACL 2016). A piece that does not end its word ends in ``@@``.

Codes are a file of lines: ``e n</w>`` of subword-nmt, whose first line says ``#version: 0.2``, or ``e n</w> 1234`` of fastBPE. Without
that line and without counts they are of version 0.1, in which ``</w>`` is a symbol of its own.
"""

from collections.abc import Iterator
from functools import lru_cache

from ...errors import InputError

_END, _SEPARATOR = "</w>", "@@"
_VERSION = "#version:"
_LONGEST_WORD = 500  # characters; merging takes the square of them, and longer ones are addresses or damage
_REMEMBERED = 2**16  # words


class BytePairs:
    """Cuts words by codes, ``cut("lower") -> ["low@@", "er"]``.

    Args:
        codes: contents of a file of codes.
        name: of the file, with the flag, for errors.

    Raises:
        InputError: a line is no code.
    """

    def __init__(self, codes: bytes, name: str) -> None:
        try:
            lines = codes.decode().split("\n")
        except UnicodeDecodeError as error:
            raise InputError(f"{name}: not UTF-8, no codes of byte pairs") from error
        has_version = lines[0].startswith(_VERSION)
        pairs = list(_pairs(lines[1:] if has_version else lines, name))
        counted = any(count for *_, count in pairs)
        self._end_is_a_symbol = not counted and (not has_version or lines[0].split()[-1] == "0.1")
        self._ranks: dict[tuple[str, str], int] = {}
        for rank, (left, right, _) in enumerate(pairs):
            self._ranks.setdefault((left, right), rank)
        self.cut = lru_cache(_REMEMBERED)(self._cut)

    def _cut(self, word: str) -> tuple[str, ...]:
        """The pieces of a word without blanks."""
        chunks = [word[start : start + _LONGEST_WORD] for start in range(0, len(word), _LONGEST_WORD)]
        pieces = [piece for chunk in chunks[:-1] for piece in self._merged([*chunk])]
        last = [*chunks[-1], _END] if self._end_is_a_symbol else [*chunks[-1][:-1], chunks[-1][-1] + _END]
        pieces += self._merged(last)
        pieces[-1] = pieces[-1].removesuffix(_END)
        if not pieces[-1]:
            pieces.pop()
        return (*(piece + _SEPARATOR for piece in pieces[:-1]), pieces[-1])

    def _merged(self, symbols: list[str]) -> list[str]:
        none = len(self._ranks)
        while len(symbols) > 1:
            best = min(zip(symbols, symbols[1:]), key=lambda pair: self._ranks.get(pair, none))
            if best not in self._ranks:
                break
            symbols = list(_with_pairs_joined(symbols, best))
        return symbols


def _pairs(lines: list[str], name: str) -> Iterator[tuple[str, str, bool]]:
    """The two symbols of each code, and whether a count stands behind them."""
    for number, line in enumerate(lines, 1):
        words = line.strip("\r ").split(" ")
        if words == [""]:
            continue
        if len(words) not in (2, 3) or len(words) == 3 and not words[2].isdecimal():
            raise InputError(f"{name}: line {number}, {line[:80]!r}, is no code of byte pairs, as in 'e n</w>'")
        yield words[0], words[1], len(words) == 3


def _with_pairs_joined(symbols: list[str], pair: tuple[str, str]) -> Iterator[str]:
    """The symbols in which each ``pair``, from the left, is one."""
    rest = iter(range(len(symbols)))
    for i in rest:
        if tuple(symbols[i : i + 2]) == pair:
            yield pair[0] + pair[1]
            next(rest)
        else:
            yield symbols[i]

"""Byte pair encoding: split words into the same pieces as subword-nmt and fastBPE. Needs neither package.

Only U+0020 separates words. Other white space, such as a tab or U+00A0, is part of a word.

A code is a pair of symbols that may be merged. At first, the symbols of a word are its characters, with ``</w>`` appended to the
last character. Each step takes the earliest code in the file that matches two neighbouring symbols, and merges this pair everywhere
in the word. The steps end when no code matches (Sennrich et al., ACL 2016). Each piece except the last one of its word gets the
suffix ``@@``.

A file of codes has lines such as ``e n</w>`` (subword-nmt, after a first line ``#version: 0.2``) or ``e n</w> 1234`` (fastBPE, with
a count). A file without a version and without counts has version 0.1, in which ``</w>`` is a separate symbol.
"""

import heapq
from collections.abc import Iterator
from functools import lru_cache

from ..errors import InputError

_END, _SEPARATOR = "</w>", "@@"
_VERSION = "#version:"
_CACHED_WORDS = 2**16


class BytePairs:
    """BPE codes that split words into pieces: ``cut("lower") -> ("low@@", "er")``.

    Args:
        codes: contents of a file of codes.
        name: flag and name of this file, for error messages.

    Raises:
        InputError: a line is not a code.
    """

    def __init__(self, codes: bytes, name: str) -> None:
        try:
            lines = codes.decode().split("\n")
        except UnicodeDecodeError as error:
            raise InputError(f"{name}: not a file of BPE codes (not UTF-8)") from error
        has_version = lines[0].startswith(_VERSION)
        pairs = list(_pairs(lines[1:] if has_version else lines, name))
        counted = any(count for *_, count in pairs)
        self._end_is_a_symbol = not counted and (not has_version or lines[0].split()[-1] == "0.1")
        self._ranks: dict[tuple[str, str], int] = {}
        for rank, (left, right, _) in enumerate(pairs):
            self._ranks.setdefault((left, right), rank)
        self.cut = lru_cache(_CACHED_WORDS)(self._cut)

    def cut_line(self, line: str) -> list[str]:
        """Split every word of a line, as subword-nmt's ``process_line`` does."""
        return [piece for word in line.strip("\r\n ").split(" ") if word for piece in self.cut(word)]

    def _cut(self, word: str) -> tuple[str, ...]:
        """Return the pieces of a non-empty word."""
        pieces = self._merged([*word, _END] if self._end_is_a_symbol else [*word[:-1], word[-1] + _END])
        pieces[-1] = pieces[-1].removesuffix(_END)
        if not pieces[-1]:
            pieces.pop()
        return (*(piece + _SEPARATOR for piece in pieces[:-1]), pieces[-1])

    def _merged(self, symbols: list[str]) -> list[str]:
        """Merge all occurrences of the earliest matching code, from left to right, until no code matches.

        The time is O(n log n) for n symbols.
        """
        rights = [*range(1, len(symbols)), 0]  # index of the next symbol, 0 if there is none
        lefts = [-1, *range(len(symbols) - 1)]
        waiting: list[tuple[int, int]] = []  # a heap of (rank of the code, index of its left symbol)

        def enqueue(left: int, right: int) -> None:
            if left >= 0 < right and (rank := self._ranks.get((symbols[left], symbols[right]))) is not None:
                heapq.heappush(waiting, (rank, left))

        for right in range(1, len(symbols)):
            enqueue(right - 1, right)
        while waiting:
            rank, places = waiting[0][0], []
            while waiting and waiting[0][0] == rank:
                places.append(heapq.heappop(waiting)[1])
            for left in places:
                right = rights[left]
                if not right or self._ranks.get((symbols[left], symbols[right])) != rank:
                    continue  # another merge has changed one of the two symbols
                symbols[left] += symbols[right]
                symbols[right] = ""
                rights[left] = rights[right]
                if rights[left]:
                    lefts[rights[left]] = left
                enqueue(lefts[left], left)
                enqueue(left, rights[left])
        return [symbol for symbol in symbols if symbol]


def _pairs(lines: list[str], name: str) -> Iterator[tuple[str, str, bool]]:
    """Yield (first symbol, second symbol, whether a count follows) for each code."""
    for number, line in enumerate(lines, 1):
        words = line.strip("\r ").split(" ")
        if words == [""]:
            continue
        if len(words) not in (2, 3) or len(words) == 3 and not words[2].isdecimal():
            raise InputError(f"{name}: line {number}, {line[:80]!r}, is not a BPE code such as 'e n</w>'")
        yield words[0], words[1], len(words) == 3

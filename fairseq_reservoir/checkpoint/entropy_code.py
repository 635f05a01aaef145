"""Symbols written near their entropy by the package constriction, with tables made from whole numbers alone.

Symbols 0 to k - 1 of which symbol i occurs n_i times among n have the entropy sum n_i log2(n / n_i) bits. The coder, asymmetric
numeral systems (Duda, 2013), gives symbol i the probability f_i / 2**24, where the f_i follow from the counts by the
division of integers and sum to 2**24: every machine has the same table, and decodes the same symbols. It keeps a state of 64 bits,
2**32 at first and again when everything is decoded, and writes words of 32 bits.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..errors import InputError

Symbols = np.ndarray[Any, np.dtype[np.uint8]]

PACKAGE = "constriction"
_PRECISION = 24
_START = (0, 1)  # words of the state 2**32, the lowest first
_AT_ONCE = 2**20  # symbols that are counted or decoded together: numpy and the package take 4 to 8 bytes for each


def counts_of(symbols: Symbols) -> list[int]:
    """The number of each symbol, from 0 to the largest that occurs."""
    counts = np.zeros(256, dtype=np.int64)
    for start in range(0, len(symbols), _AT_ONCE):
        counts += np.bincount(symbols[start : start + _AT_ONCE], minlength=256)
    return [int(count) for count in np.trim_zeros(counts, "b")]


def entropy_bits(counts: Sequence[float]) -> float:
    """The entropy of symbols of these counts, sum n_i log2(n / n_i); of shares that sum to 1, that of one symbol."""
    n = sum(counts)
    return math.fsum(count * math.log2(n / count) for count in counts if count)


def frequencies(counts: Sequence[int]) -> list[int]:
    """2**24 shared out in proportion to the counts: 1 and floor(n_i (2**24 - k) / n) each, and the rest to the most frequent symbol."""
    n, free = sum(counts), 2**_PRECISION - len(counts)
    shared = [1 + count * free // n for count in counts]
    shared[counts.index(max(counts))] += 2**_PRECISION - sum(shared)
    return shared


def coded_bits(counts: Sequence[int]) -> float:
    """The bits that ``encode`` needs for symbols of these counts, but for its state and whole words: two words more or less."""
    return math.fsum(n * (_PRECISION - math.log2(f)) for n, f in zip(counts, frequencies(counts)))


def encode(symbols: Symbols, counts: Sequence[int]) -> bytes:
    """The symbols as 32-bit words, the lowest byte of each first.

    Args:
        symbols: in the order in which ``decode`` returns them.
        counts: ``counts_of`` the symbols; at least two of them.

    Raises:
        InputError: the package is not installed.
    """
    coder = package("--compact needs").stream.stack.AnsCoder(np.array(_START, dtype=np.uint32))
    coder.encode_reverse(symbols.astype(np.int32), _model(counts))
    words: bytes = coder.get_compressed().astype("<u4").tobytes()
    return words


def decode(coded: bytes | memoryview, counts: Sequence[int]) -> Symbols:
    """The symbols that ``encode`` was given.

    Raises:
        InputError: the package is not installed.
        ValueError: these are not the words of symbols of these counts.
    """
    words = np.frombuffer(coded, dtype="<u4").astype(np.uint32)
    coder, model = package("a compact export; reading it needs").stream.stack.AnsCoder(words), _model(counts)
    symbols = np.empty(sum(counts), dtype=np.uint8)
    for start in range(0, len(symbols), _AT_ONCE):
        part = symbols[start : start + _AT_ONCE]
        part[:] = coder.decode(model, len(part))
    if tuple(coder.get_compressed()) != _START or counts_of(symbols) != list(counts):
        raise ValueError("not the words of symbols of these counts")
    return symbols


def _model(counts: Sequence[int]) -> Any:
    """The package adds 1 to each weight and scales them to 2**24; these sum to what is left, so that the scale is exactly 1."""
    weights = np.array(frequencies(counts), dtype=np.float64) - 1
    return package("a compact export; reading it needs").stream.model.Categorical(weights, perfect=False)


def package(what: str) -> Any:
    """The package.

    Args:
        what: what needs it, and a verb.

    Raises:
        InputError: it is not installed.
    """
    try:
        import constriction
    except ImportError as error:
        raise InputError(f"{what} the package {PACKAGE}, which is not installed: pip install {PACKAGE}") from error
    return constriction

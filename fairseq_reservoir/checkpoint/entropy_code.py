"""Entropy coding with the package constriction. Its tables are computed with integers only.

If symbol i of 0 to k - 1 occurs n_i times among n symbols, the entropy is sum n_i log2(n / n_i) bits. The coder uses asymmetric numeral
systems (Duda, 2013) and the probabilities f_i / 2**24. The f_i are computed from the counts by integer division and sum to 2**24, so
every machine has the same table and decodes the same symbols. The coder has a state of 64 bits, which is 2**32 at the beginning and again
after decoding, and writes words of 32 bits.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..errors import InputError

Symbols = np.ndarray[Any, np.dtype[np.uint8]]

PACKAGE = "constriction"
_PRECISION = 24
_START = (0, 1)  # words of the state 2**32, lowest first
_AT_ONCE = 2**20  # symbols per step, because numpy and constriction need 4 to 8 bytes for each


def counts_of(symbols: Symbols) -> list[int]:
    """Count each symbol, from 0 to the largest that occurs."""
    counts = np.zeros(256, dtype=np.int64)
    for start in range(0, len(symbols), _AT_ONCE):
        counts += np.bincount(symbols[start : start + _AT_ONCE], minlength=256)
    return [int(count) for count in np.trim_zeros(counts, "b")]


def entropy_bits(counts: Sequence[float]) -> float:
    """Return the entropy of symbols with these counts, sum n_i log2(n / n_i). Shares that sum to 1 give the entropy per symbol."""
    n = sum(counts)
    return math.fsum(count * math.log2(n / count) for count in counts if count)


def frequencies(counts: Sequence[int]) -> list[int]:
    """Return frequencies with the sum 2**24: 1 + floor(n_i (2**24 - k) / n) each, and the rest to the most frequent symbol."""
    n, free = sum(counts), 2**_PRECISION - len(counts)
    shared = [1 + count * free // n for count in counts]
    shared[counts.index(max(counts))] += 2**_PRECISION - sum(shared)
    return shared


def coded_bits(counts: Sequence[int]) -> float:
    """Return the expected code length in bits. ``encode`` may differ by two words, because of its state and whole words."""
    return math.fsum(n * (_PRECISION - math.log2(f)) for n, f in zip(counts, frequencies(counts)))


def encode(symbols: Symbols, counts: Sequence[int]) -> bytes:
    """Encode symbols as little-endian 32-bit words.

    Args:
        symbols: at least two different ones.
        counts: ``counts_of(symbols)``.

    Raises:
        InputError: constriction is not installed.
    """
    coder = package("--compact needs").stream.stack.AnsCoder(np.array(_START, dtype=np.uint32))
    coder.encode_reverse(symbols.astype(np.int32), _model(counts))
    words: bytes = coder.get_compressed().astype("<u4").tobytes()
    return words


def decode(coded: bytes | memoryview, counts: Sequence[int]) -> Symbols:
    """Decode the output of ``encode``.

    Raises:
        InputError: constriction is not installed.
        ValueError: this is not the code of symbols with these counts.
    """
    words = np.frombuffer(coded, dtype="<u4").astype(np.uint32)
    coder, model = package("a compact export; reading it needs").stream.stack.AnsCoder(words), _model(counts)
    symbols = np.empty(sum(counts), dtype=np.uint8)
    for start in range(0, len(symbols), _AT_ONCE):
        part = symbols[start : start + _AT_ONCE]
        part[:] = coder.decode(model, len(part))
    if tuple(coder.get_compressed()) != _START or counts_of(symbols) != list(counts):
        raise ValueError("not the code of symbols with these counts")
    return symbols


def _model(counts: Sequence[int]) -> Any:
    """Return the model of the table. constriction adds 1 to each weight and scales the sum to 2**24, here with a scale of exactly 1."""
    weights = np.array(frequencies(counts), dtype=np.float64) - 1
    return package("a compact export; reading it needs").stream.model.Categorical(weights, perfect=False)


def package(what: str) -> Any:
    """Import constriction.

    Args:
        what: subject and verb of the message, such as "--compact needs".

    Raises:
        InputError: it is not installed.
    """
    try:
        import constriction
    except ImportError as error:
        raise InputError(f"{what} the package {PACKAGE}, which is not installed: pip install {PACKAGE}") from error
    return constriction

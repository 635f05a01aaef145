"""Entropy coding with the package constriction. The coding tables are computed with integers only.

The symbols are the whole numbers 0 to k - 1. Let n_i be the count of symbol i, and n the sum of all counts. The entropy of the n symbols
is the sum of n_i log2(n / n_i) bits over all i. The coder uses asymmetric numeral systems (Duda, 2013). The coder assumes that symbol i has
the probability f_i / 2**24. The frequencies f_i are computed from the counts by integer division, and their sum is 2**24. Every machine
therefore computes the same table and decodes the same symbols. The coder writes words of 32 bits and has a state of 64 bits. The state is
2**32 before encoding, and again after decoding.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..errors import optional_package

Symbols = np.ndarray[Any, np.dtype[np.uint8]]

PACKAGE, _READING = "constriction", "a compact export; reading it needs"
_PRECISION = 24
_START = (0, 1)  # words of the state 2**32, lowest first
_AT_ONCE = 2**20  # symbols per step; limits the memory, because numpy and constriction need 4 to 8 bytes per symbol


def counts_of(symbols: Symbols) -> list[int]:
    """Return the counts of all symbols from 0 to the largest symbol that occurs."""
    counts = np.zeros(256, dtype=np.int64)
    for start in range(0, len(symbols), _AT_ONCE):
        counts += np.bincount(symbols[start : start + _AT_ONCE], minlength=256)
    return [int(count) for count in np.trim_zeros(counts, "b")]


def entropy_bits(counts: Sequence[float]) -> float:
    """Return the entropy in bits of symbols with the counts n_i: the sum of n_i log2(n / n_i), where n is the sum of the counts.

    If the counts are relative frequencies with the sum 1, the result is the entropy per symbol.
    """
    n = sum(counts)
    return math.fsum(count * math.log2(n / count) for count in counts if count)


def frequencies(counts: Sequence[int]) -> list[int]:
    """Return the frequency f_i of each symbol. The frequencies sum to 2**24.

    For k symbols with the counts n_i and their sum n, f_i is 1 + floor(n_i (2**24 - k) / n). The difference between 2**24 and the sum of
    these values is added to the frequency of the symbol with the largest count.
    """
    n, free = sum(counts), 2**_PRECISION - len(counts)
    shared = [1 + count * free // n for count in counts]
    shared[counts.index(max(counts))] += 2**_PRECISION - sum(shared)
    return shared


def coded_bits(counts: Sequence[int]) -> float:
    """Return the expected code length in bits: the sum of -n_i log2(f_i / 2**24) over all i.

    The output of ``encode`` also contains the coder's state and consists of whole 32-bit words. The length of this output may therefore
    differ from the expected length by up to two words.
    """
    return math.fsum(n * (_PRECISION - math.log2(f)) for n, f in zip(counts, frequencies(counts)))


def encode(symbols: Symbols, counts: Sequence[int]) -> bytes:
    """Encode symbols as little-endian 32-bit words.

    Args:
        symbols: symbols of at least two different values.
        counts: ``counts_of(symbols)``.

    Raises:
        InputError: constriction is not installed.
    """
    coder = optional_package(PACKAGE, "--compact needs").stream.stack.AnsCoder(np.array(_START, dtype=np.uint32))
    coder.encode_reverse(symbols.astype(np.int32), _model(counts))
    words: bytes = coder.get_compressed().astype("<u4").tobytes()
    return words


def decode(coded: bytes | memoryview, counts: Sequence[int]) -> Symbols:
    """Decode the output of ``encode``.

    Raises:
        InputError: constriction is not installed.
        ValueError: ``coded`` is not the code of symbols with these counts.
    """
    words = np.frombuffer(coded, dtype="<u4").astype(np.uint32)
    coder, model = optional_package(PACKAGE, _READING).stream.stack.AnsCoder(words), _model(counts)
    symbols = np.empty(sum(counts), dtype=np.uint8)
    for start in range(0, len(symbols), _AT_ONCE):
        part = symbols[start : start + _AT_ONCE]
        part[:] = coder.decode(model, len(part))
    if tuple(coder.get_compressed()) != _START or counts_of(symbols) != list(counts):
        raise ValueError("the bytes are not the code of symbols with these counts")
    return symbols


def _model(counts: Sequence[int]) -> Any:
    """Return constriction's model with the probabilities f_i / 2**24.

    constriction takes one weight per symbol. It multiplies all weights by a common factor and adds 1 to each product. It chooses the factor
    so that the results sum to 2**24. For the weights f_i - 1, this factor is exactly 1, so the probabilities are exact.
    """
    weights = np.array(frequencies(counts), dtype=np.float64) - 1
    return optional_package(PACKAGE, _READING).stream.model.Categorical(weights, perfect=False)

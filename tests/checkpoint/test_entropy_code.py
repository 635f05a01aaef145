"""The entropy coder: tables by hand, a slow integer decoder, and refusals."""

import sys
from itertools import accumulate

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from fairseq_reservoir.checkpoint import entropy_code
from fairseq_reservoir.errors import InputError


@pytest.fixture
def constriction():
    """Import constriction, or skip the test."""
    return pytest.importorskip("constriction", reason="constriction is not installed: pip install constriction")


def test_entropies_by_hand():
    # 3 of 4: 3 log2(4/3) + 1 log2(4) = 1.2451 + 2
    assert entropy_code.entropy_bits([3, 1]) == pytest.approx(3.2451, abs=1e-4)
    assert entropy_code.entropy_bits([1, 0, 1]) == 2
    assert entropy_code.entropy_bits([5]) == entropy_code.entropy_bits([0, 7]) == 0
    # keep ratio 0.3
    assert entropy_code.entropy_bits([0.7, 0.3]) == pytest.approx(0.8813, abs=1e-4)


def test_frequencies_by_hand():
    # shares of 2**24 - 2 = 16777214: 1 + floor(16777214 * 3/4), 1 + floor(16777214 / 4), and the first gets the remaining 1
    assert entropy_code.frequencies([3, 1]) == [12582912, 4194304]
    # a symbol that never occurs, or very rarely, has 1 of 2**24
    assert entropy_code.frequencies([2, 0, 2]) == [2**23, 1, 2**23 - 1]
    assert entropy_code.frequencies([1, 2**40]) == [1, 2**24 - 1]


def test_counts():
    assert entropy_code.counts_of(np.array([2, 0, 2], dtype=np.uint8)) == [1, 0, 2]
    assert entropy_code.counts_of(np.zeros(0, dtype=np.uint8)) == []
    many = np.arange(3 * 2**20, dtype=np.uint32).astype(np.uint8)
    assert entropy_code.counts_of(many) == [3 * 2**12] * 256


def slowly_decoded(coded, counts):
    """Decode one symbol at a time: the lowest 24 bits of the state select it, and below 2**32 the next word is read."""
    words = [int.from_bytes(coded[i : i + 4], "little") for i in range(0, len(coded), 4)]
    shares = entropy_code.frequencies(counts)
    below = [0, *accumulate(shares)]
    state = words.pop() << 32 | words.pop()
    symbols = []
    for _ in range(sum(counts)):
        at = state % 2**24
        symbol = next(s for s in range(len(shares)) if at < below[s + 1])
        state = shares[symbol] * (state >> 24) + at - below[symbol]
        if state < 2**32 and words:
            state = state << 32 | words.pop()
        symbols.append(symbol)
    assert state == 2**32 and not words
    return symbols


def test_golden_words(constriction):
    """Words written by constriction 0.5.0, which every later version must read."""
    symbols, words = np.array([0, 0, 1, 0] * 20, dtype=np.uint8), "0000c0812c8aad3c17e4b7dd01000000"
    assert entropy_code.encode(symbols, [60, 20]).hex() == words
    assert entropy_code.decode(bytes.fromhex(words), [60, 20]).tolist() == symbols.tolist()
    assert slowly_decoded(bytes.fromhex(words), [60, 20]) == symbols.tolist()


@settings(max_examples=60, deadline=None)
@given(
    alphabet=st.integers(2, 256),
    size=st.integers(2, 3000),
    skew=st.floats(0.1, 8),
    zeros=st.integers(0, 1000),
    seed=st.integers(0, 2**32 - 1),
)
def test_symbols_come_back(alphabet, size, skew, zeros, seed):
    """Decoding restores the symbols, also with many of the most frequent one at the end. The code is less than 0.1 % longer than the
    entropy, plus a state of about 48 bits."""
    pytest.importorskip("constriction", reason="constriction is not installed: pip install constriction")
    draw = np.random.default_rng(seed)
    symbols = (alphabet * draw.random(size) ** skew).astype(np.uint8)
    symbols[max(1, size - zeros) :] = 0
    symbols[0] = alphabet - 1
    counts = entropy_code.counts_of(symbols)
    coded = entropy_code.encode(symbols, counts)
    assert entropy_code.decode(coded, counts).tolist() == symbols.tolist() == slowly_decoded(coded, counts)
    bits = entropy_code.coded_bits(counts)
    assert bits <= 1.001 * entropy_code.entropy_bits(counts) + 1
    assert abs(8 * len(coded) - bits - 48) <= 32 + bits / 1024


def test_long_runs_are_decoded_in_parts(constriction):
    symbols = (np.random.default_rng(1).random(2**20 + 5) < 0.3).astype(np.uint8)
    counts = entropy_code.counts_of(symbols)
    coded = entropy_code.encode(symbols, counts)
    assert (entropy_code.decode(coded, counts) == symbols).all()
    assert 8 * len(coded) <= 1.0001 * entropy_code.entropy_bits(counts)


def test_other_words_are_refused(constriction):
    symbols = np.array([0, 1, 2, 1] * 50, dtype=np.uint8)
    counts = entropy_code.counts_of(symbols)
    coded = entropy_code.encode(symbols, counts)
    for other in (
        coded[:-4],
        coded[4:],
        b"\1\0\0\0" + coded,
        b"",
        bytes(len(coded)),
        bytes([coded[0] ^ 1]) + coded[1:],
    ):
        with pytest.raises(ValueError):
            entropy_code.decode(other, counts)
    with pytest.raises(ValueError):
        entropy_code.decode(coded, [51, 99, 50])


def test_without_the_package(monkeypatch):
    monkeypatch.setitem(sys.modules, "constriction", None)
    missing = "the package constriction, which is not installed: pip install constriction$"
    with pytest.raises(InputError, match=f"^a compact export; reading it needs {missing}"):
        entropy_code.decode(bytes(16), [3, 1])
    with pytest.raises(InputError, match=f"^--compact needs {missing}"):
        entropy_code.encode(np.array([0, 1], dtype=np.uint8), [1, 1])

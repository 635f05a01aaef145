"""Triton kernels for an exact selection of the largest scores. Import this module only if triton is installed.

Each score becomes an int32 key of the same order (``_keys``). The k-th largest key of a row is found digit by digit, from the
highest digit. For each digit, ``count_digits`` computes a histogram of this digit over the keys that begin with the digits found so far.
The programs of the next kernel compute the digit from the histogram. Therefore the host reads nothing, and no extra kernel is needed.
``write_mask`` compares all keys with the k-th largest. For rows that fit into registers, ``select_in_registers`` does all of this in one
pass.

The digits of a magnitude are its bits 30-23, 22-15, 14-7 and 6-0. The digits of a signed key are its four bytes. The time
hardly depends on the values, because ``tl.histogram`` counts by votes of the threads, and atomic operations on single keys are rare.

A row of n scores is divided into ``chunks`` chunks. A chunk has BLOCKS blocks, and a block has BLOCK scores. A program reads one chunk.
``totals`` (planes, rows, BINS) and ``parts`` (rows, chunks, BINS) are int32. Plane 0 of ``totals`` counts the first digit. The planes
``plane``, ``plane + 1`` and ``plane + 2`` count the other digits. A mask is int8.
"""

# mypy: disable-error-code="no-untyped-def"
# Triton evaluates annotations, and accepts only its own types.

from collections.abc import Callable
from typing import Any

import triton
import triton.language as tl

BINS = 256
LEVELS = 4  # digits of a key
_BINS: Any = tl.constexpr(BINS)
_FEW: Any = tl.constexpr(64)


def _jit(function: Callable[..., Any]) -> Any:
    return triton.jit(function)


def _jit_kernel(function: Callable[..., Any]) -> Any:
    """Compile one kernel for all values of rows, chunks, wanted and plane. By default, triton adds kernels for 1 and for multiples of 16.

    Extra kernels pay off only for n, where multiples of 16 allow wide reads. Triton 3.6 fails to compile the kernel for 1 chunk.
    """
    return triton.jit(function, do_not_specialize=["rows", "chunks", "wanted", "plane"])


@_jit
def _keys(scores, MAGNITUDE: tl.constexpr):
    """Convert scores to int32 keys with the order of the scores, or of their magnitudes. A NaN has the key of infinity.

    The bits of a float's magnitude form an integer. These integers have the same order as the magnitudes. 0 and -0 have the same key.
    """
    bits = scores.to(tl.float32).to(tl.int32, bitcast=True)
    size = bits & 0x7FFFFFFF
    signed = tl.where(bits < 0, -size, size)
    key = size if MAGNITUDE else signed
    return tl.where(size > 0x7F800000, 0x7F800000, key)


@_jit
def _known_digits(totals, row, rows, wanted, plane, MAGNITUDE: tl.constexpr, LEVEL: tl.constexpr):
    """Find the first ``LEVEL`` digits of the ``wanted``-th largest key of a row.

    Returns:
        The digits as one number, the number of keys to keep among those that begin with these digits, and the last digit.
    """
    bins = tl.arange(0, _BINS)
    digits = 0
    digit = 0
    missing = wanted
    for level in tl.static_range(LEVEL):
        place = row if level == 0 else (plane + level - 1).to(tl.int64) * rows + row
        counts = tl.load(totals + place * _BINS + bins)
        larger = tl.sum(counts, 0) - tl.cumsum(counts, 0)  # number of keys with a larger digit than each bin's
        digit = tl.sum((larger >= missing).to(tl.int32), 0)
        missing = missing - tl.max(tl.where(larger < missing, larger, 0), 0)
        if level == 0:
            digits = digit if MAGNITUDE else digit - 128
        elif MAGNITUDE and level == 3:
            digits = digits * 128 + digit
        else:
            digits = digits * 256 + digit
    return digits, missing, digit


@_jit_kernel
def count_digits(
    scores,
    totals,
    parts,
    n,
    rows,
    chunks,
    wanted,
    plane,
    MAGNITUDE: tl.constexpr,
    LEVEL: tl.constexpr,
    BLOCKS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Compute a histogram of digit ``LEVEL`` over the keys of a chunk that begin with the known digits of the ``wanted``-th largest key.

    The counts are added to ``totals``. The counts of the last digit are also stored in ``parts``.
    """
    program = tl.program_id(0).to(tl.int64)
    row = program // chunks
    bins = tl.arange(0, _BINS)
    LAST: tl.constexpr = LEVEL == 3
    SHIFT: tl.constexpr = 0 if LAST else (23 if MAGNITUDE else 24) - 8 * LEVEL
    KNOWN: tl.constexpr = SHIFT + (7 if MAGNITUDE and LAST else 8)  # bits below the known digits
    total = totals + (row if LEVEL == 0 else (plane + LEVEL - 1).to(tl.int64) * rows + row) * _BINS
    digits = 0
    if LEVEL > 0:
        digits, _, _ = _known_digits(totals, row, rows, wanted, plane, MAGNITUDE, LEVEL)
    start = (program % chunks).to(tl.int32) * (BLOCKS * BLOCK)
    counts = tl.zeros((_BINS,), tl.int32)
    others = start * 0  # number of keys that do not begin with the known digits; bin 0 counts them, too
    for block in range(BLOCKS):
        offsets = start + block * BLOCK + tl.arange(0, BLOCK)
        inside = offsets < n
        key = _keys(tl.load(scores + row * n + offsets, mask=inside, other=0.0), MAGNITUDE)
        if LEVEL > 0:
            inside = inside & ((key >> KNOWN) == digits)
            digit = (key >> SHIFT) & ((1 << (KNOWN - SHIFT)) - 1)
        else:
            digit = key >> SHIFT if MAGNITUDE else (key >> SHIFT) + 128
        found = tl.sum(inside.to(tl.int32), 0)
        if LEVEL == 2 and found <= _FEW:  # the usual case, because few scores share 16 bits
            tl.atomic_add(total + digit, inside.to(tl.int32), mask=inside, sem="relaxed")
        elif found > 0:
            counts += tl.histogram(tl.where(inside, digit, 0), _BINS)
            others += BLOCK - found
    counts -= tl.where(bins == 0, others, 0)
    tl.atomic_add(total + bins, counts, mask=counts > 0, sem="relaxed")
    if LAST:
        tl.store(parts + program * _BINS + bins, counts)


@_jit_kernel
def write_mask(
    scores,
    totals,
    parts,
    mask,
    n,
    rows,
    chunks,
    wanted,
    plane,
    MAGNITUDE: tl.constexpr,
    ADD: tl.constexpr,
    BLOCKS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Write 1 at the ``wanted`` largest scores of each row and 0 elsewhere. With ADD, add these values to ``mask``.

    Ties are keys that equal the ``wanted``-th largest. The ties with the lowest indices are kept. ``parts`` gives the number of ties
    in earlier chunks. Ties are counted one by one only in the chunk with the last tie that is kept.
    """
    program = tl.program_id(0).to(tl.int64)
    row = program // chunks
    chunk = (program % chunks).to(tl.int32)
    threshold, left, digit = _known_digits(totals, row, rows, wanted, plane, MAGNITUDE, 4)
    ties = parts + digit  # number of ties in each chunk
    first = chunk * 0
    while first < chunk:
        earlier = first + tl.arange(0, BLOCK)
        left -= tl.sum(tl.load(ties + (row * chunks + earlier) * _BINS, mask=earlier < chunk, other=0), 0)
        first += BLOCK
    here = tl.load(ties + program * _BINS)
    start = chunk * (BLOCKS * BLOCK)
    for block in range(BLOCKS):
        offsets = start + block * BLOCK + tl.arange(0, BLOCK)
        inside = offsets < n
        key = _keys(tl.load(scores + row * n + offsets, mask=inside, other=0.0), MAGNITUDE)
        tied = inside & (key == threshold)
        kept = tied & (left > 0)
        if (left > 0) & (left < here):
            count = tied.to(tl.int32)
            kept = tied & (tl.cumsum(count, 0) <= left)
            left -= tl.sum(count, 0)
            here -= tl.sum(count, 0)
        kept = (kept | (key > threshold)).to(tl.int8)
        place = mask + row * n + offsets
        if ADD:
            kept += tl.load(place, mask=inside, other=0)
        tl.store(place, kept, mask=inside)


@_jit_kernel
def select_in_registers(
    scores,
    mask,
    n,
    rows,
    wanted,
    MAGNITUDE: tl.constexpr,
    ADD: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """Write the same mask as ``write_mask``, for rows of up to COLUMNS scores. A program reads ROWS rows once, and finds the threshold of
    each row bit by bit.
    """
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, COLUMNS)
    inside = (row < rows)[:, None] & (column < n)[None, :]
    places = row[:, None] * n + column[None, :]
    # Places outside the row get a number below all keys, even below that of minus infinity.
    key = tl.where(inside, _keys(tl.load(scores + places, mask=inside, other=0.0), MAGNITUDE), -0x7FFFFFFF)
    threshold = tl.zeros((ROWS,), tl.int32)
    if not MAGNITUDE:
        positive = tl.sum((key >= 0).to(tl.int32), 1) >= wanted
        threshold = tl.where(positive, threshold, -2147483648)
    bit = 1 << 30
    for step in range(31):
        larger = threshold + bit
        enough = tl.sum((key >= larger[:, None]).to(tl.int32), 1) >= wanted
        threshold = tl.where(enough, larger, threshold)
        bit = bit // 2
    above = key > threshold[:, None]
    tied = (inside & (key == threshold[:, None])).to(tl.int32)
    missing = wanted - tl.sum(above.to(tl.int32), 1)
    kept = tied
    if tl.max(tl.sum(tied, 1) - missing, 0) > 0:
        kept = tl.where(tl.cumsum(tied, 1) <= missing[:, None], tied, 0)
    kept = ((kept > 0) | above).to(tl.int8)
    if ADD:
        kept += tl.load(mask + places, mask=inside, other=0)
    tl.store(mask + places, kept, mask=inside)

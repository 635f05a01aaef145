"""Random tensors that depend only on a seed and the tensor's name.

Random 32-bit words come from Philox4x64-10 (Salmon et al., 2011), a counter-based generator. NumPy guarantees the same
stream in all releases and on all platforms. The generator's key is a hash of the seed and the tensor's name. A tensor
therefore does not depend on other draws, the device, the number of processes or torch's global state.

Uniform and sign tensors have the same bits on every machine: each value is an exact integer times a constant, rounded once. Normal tensors
need ``log`` and ``cos``, and the last bit of both depends on the platform's libm. Normal tensors are computed in float64, and differ
between machines by about 1e-6.

This module needs no torch and returns NumPy arrays. ``tensors.drawn`` converts them.
"""

import hashlib
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

Shape = Sequence[int]
Floats = np.ndarray[Any, np.dtype[np.float32]]
Doubles = np.ndarray[Any, np.dtype[np.float64]]
GENERATOR = "philox4x64-10/sha256/v1"


def words(seed: int, name: str, count: int) -> np.ndarray:
    """Return the first ``count`` random words (uint32) for a seed and a name."""
    digest = hashlib.sha256(f"{seed}\0{name}".encode()).digest()
    generator = np.random.Philox(key=np.frombuffer(digest[:16], "<u8").astype(np.uint64))
    raw = generator.random_raw((count + 1) // 2)
    return raw.astype("<u8", copy=False).view("<u4")[:count]


def uniform(seed: int, name: str, shape: Shape, bound: float) -> Floats:
    """Draw float32 values uniformly from 2^24 equidistant points in (-bound, bound), symmetric about 0.

    If w is the upper 24 bits of a random word, ``value = (2w + 1 - 2^24) * (bound / 2^24)``. The first factor is an odd integer below 2^24
    in magnitude, so it is exact in float32. Only the product is rounded.
    """
    centred = (words(seed, name, math.prod(shape)) >> 8).astype(np.int32)
    centred *= 2
    centred += 1 - 2**24
    return (centred.astype(np.float32) * np.float32(bound / 2**24)).reshape(shape)


def sign(seed: int, name: str, shape: Shape) -> Floats:
    """Draw -1 or +1 (float32) with probability 1/2 each. An entry uses one bit of a random word."""
    count = math.prod(shape)
    bits = np.unpackbits(sign_bits(seed, name, count), count=count, bitorder="little")
    return (bits.astype(np.float32) * 2 - 1).reshape(shape)


def sign_bits(seed: int, name: str, count: int) -> np.ndarray:
    """Return the signs that ``sign`` draws, packed into bits (uint8). Up to 3 bytes at the end are unused.

    Entry i is +1 if bit i % 8 of byte i // 8 is set, else -1.
    """
    return words(seed, name, (count + 31) // 32).view(np.uint8)


def normal(seed: int, name: str, shape: Shape) -> Doubles:
    """Draw standard normal values (float64). Each is computed from two random words (Box and Muller, 1958)."""
    count = math.prod(shape)
    u = (words(seed, name, 2 * count).astype(np.float64) + 0.5) / 2**32
    values: Doubles = np.sqrt(-2 * np.log(u[0::2])) * np.cos(2 * math.pi * u[1::2])
    return values.reshape(shape)

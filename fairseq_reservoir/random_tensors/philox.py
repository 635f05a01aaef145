"""Frozen randomness: tensors that depend on (seed, tensor name) and on nothing else.

The words come from Philox4x64-10 (Salmon et al., 2011), a counter-based generator whose stream NumPy keeps fixed across
releases and platforms. The generator's key is a hash of the seed and the tensor's name, so no tensor depends on which
others were drawn, on the device, on the number of processes or on torch's global state.

Uniform and sign tensors are made from those integers by exactly representable steps and one rounding: the same bits on
every machine. Normal tensors go through ``log`` and ``cos``, whose last bit belongs to the platform's libm; they agree
across machines to about 1e-6, and are float64 for that reason.

Inside ``torch.device("meta")`` tensors have a shape and no values, and nothing is drawn.
"""

import functools
import hashlib
import math
from collections.abc import Callable, Sequence

import numpy as np
import torch

Shape = Sequence[int]
GENERATOR = "philox4x64-10/sha256/v1"


def words(seed: int, name: str, count: int) -> np.ndarray:
    """``count`` unsigned 32-bit words of the stream that belongs to ``(seed, name)``."""
    digest = hashlib.sha256(f"{seed}\0{name}".encode()).digest()
    generator = np.random.Philox(key=np.frombuffer(digest[:16], "<u8").astype(np.uint64))
    raw = generator.random_raw((count + 1) // 2)
    return raw.astype("<u8", copy=False).view("<u4")[:count]


def _nothing_on_meta(draw: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    @functools.wraps(draw)
    def wrapper(seed: int, name: str, shape: Shape, *args: float) -> torch.Tensor:
        if torch.get_default_device().type == "meta":
            return torch.empty(shape, dtype=torch.float64 if draw.__name__ == "normal" else torch.float32)
        return draw(seed, name, shape, *args)

    return wrapper


@_nothing_on_meta
def uniform(seed: int, name: str, shape: Shape, bound: float) -> torch.Tensor:
    """float32 uniform on the open interval (-bound, bound), symmetric about 0, on a grid of 2^24 points.

    With w the top 24 bits of a word: ``value = (2w + 1 - 2^24) * (bound / 2^24)``. The bracket is an odd integer below
    2^24 in size, hence exact in float32; the product is rounded once.
    """
    centred = (words(seed, name, math.prod(shape)) >> 8).astype(np.int32)
    centred *= 2
    centred += 1 - 2**24
    return torch.from_numpy(centred.astype(np.float32) * np.float32(bound / 2**24)).reshape(shape)


@_nothing_on_meta
def sign(seed: int, name: str, shape: Shape) -> torch.Tensor:
    """float32 tensor of -1 and +1, each with probability 1/2: one bit of the stream per entry."""
    count = math.prod(shape)
    bits = np.unpackbits(sign_bits(seed, name, count), count=count, bitorder="little")
    return torch.from_numpy(bits.astype(np.float32) * 2 - 1).reshape(shape)


def sign_bits(seed: int, name: str, count: int) -> np.ndarray:
    """The random bits of ``sign``: uint8, entry i is +1 where bit i % 8 of byte i // 8 is set; up to 3 bytes too many."""
    return words(seed, name, (count + 31) // 32).view(np.uint8)


@_nothing_on_meta
def normal(seed: int, name: str, shape: Shape) -> torch.Tensor:
    """float64 standard normal by Box and Muller (1958), one pair of words per entry."""
    count = math.prod(shape)
    u = (words(seed, name, 2 * count).astype(np.float64) + 0.5) / 2**32
    return torch.from_numpy(np.sqrt(-2 * np.log(u[0::2])) * np.cos(2 * math.pi * u[1::2])).reshape(shape)

"""Random tensors that depend only on a seed and the tensor's name.

Random 32-bit words come from Philox4x64-10 (Salmon et al., 2011), a counter-based generator. NumPy guarantees the same
stream in all releases and on all platforms. The generator's key is a hash of the seed and the tensor's name. A tensor
therefore does not depend on other draws, the device, the number of processes or torch's global state.

Uniform and sign tensors have the same bits on every machine, because all steps from the words to the values are exact,
except for one rounding. Normal tensors use ``log`` and ``cos``. The last bit of both functions depends on the platform's
libm. Normal tensors are therefore computed in float64, and agree across machines to about 1e-6.

Inside ``torch.device("meta")`` nothing is drawn. The tensors have a shape but no values.
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
    """Return the first ``count`` unsigned 32-bit random words of the stream of ``(seed, name)``."""
    digest = hashlib.sha256(f"{seed}\0{name}".encode()).digest()
    generator = np.random.Philox(key=np.frombuffer(digest[:16], "<u8").astype(np.uint64))
    raw = generator.random_raw((count + 1) // 2)
    return raw.astype("<u8", copy=False).view("<u4")[:count]


def _empty_on_meta(draw: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """Decorator: on the meta device, return a tensor without values instead of drawing."""

    @functools.wraps(draw)
    def wrapper(seed: int, name: str, shape: Shape, *args: float) -> torch.Tensor:
        if torch.get_default_device().type == "meta":
            return torch.empty(shape, dtype=torch.float64 if draw.__name__ == "normal" else torch.float32)
        return draw(seed, name, shape, *args)

    return wrapper


@_empty_on_meta
def uniform(seed: int, name: str, shape: Shape, bound: float) -> torch.Tensor:
    """Draw float32 values uniformly from a grid of 2^24 points in the open interval (-bound, bound), symmetric about 0.

    Let w be the upper 24 bits of a random word. Then ``value = (2w + 1 - 2^24) * (bound / 2^24)``. The first factor is an odd
    integer with a magnitude below 2^24, so float32 represents it exactly. The product is rounded once.
    """
    centred = (words(seed, name, math.prod(shape)) >> 8).astype(np.int32)
    centred *= 2
    centred += 1 - 2**24
    return torch.from_numpy(centred.astype(np.float32) * np.float32(bound / 2**24)).reshape(shape)


@_empty_on_meta
def sign(seed: int, name: str, shape: Shape) -> torch.Tensor:
    """Draw a float32 tensor of -1 and +1, each with probability 1/2. Each entry uses one bit of the random words."""
    count = math.prod(shape)
    bits = np.unpackbits(sign_bits(seed, name, count), count=count, bitorder="little")
    return torch.from_numpy(bits.astype(np.float32) * 2 - 1).reshape(shape)


def sign_bits(seed: int, name: str, count: int) -> np.ndarray:
    """Return the entries of ``sign`` as packed bits (uint8), with up to 3 unused bytes at the end.

    Entry i is +1 if bit i % 8 of byte i // 8 is set, else -1.
    """
    return words(seed, name, (count + 31) // 32).view(np.uint8)


@_empty_on_meta
def normal(seed: int, name: str, shape: Shape) -> torch.Tensor:
    """Draw float64 standard normal values by the transform of Box and Muller (1958), from two random words per entry."""
    count = math.prod(shape)
    u = (words(seed, name, 2 * count).astype(np.float64) + 0.5) / 2**32
    return torch.from_numpy(np.sqrt(-2 * np.log(u[0::2])) * np.cos(2 * math.pi * u[1::2])).reshape(shape)

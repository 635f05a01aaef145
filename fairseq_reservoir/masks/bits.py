"""Pack integer masks into bits, and unpack them."""

import math
from collections.abc import Sequence

import numpy as np
import torch


def bytes_of(count: int, bits: int) -> int:
    """Return the size in bytes of a packed mask with ``count`` entries of ``bits`` bits."""
    return bits * math.ceil(count / 8)


def pack(mask: torch.Tensor, bits: int, lowest: int = 0) -> torch.Tensor:
    """Pack a mask of integers from ``lowest`` to ``lowest + 2**bits - 1`` into a uint8 vector of ``bytes_of(n, bits)`` bytes.

    n is the number of entries. The vector consists of ``bits`` planes, one after the other. Plane b has bit b of every
    ``entry - lowest``. The bit of entry i is bit i % 8 of byte i // 8 of the plane.

    Raises:
        ValueError: an entry is outside the range.
    """
    entries = mask.detach().cpu().reshape(-1).to(torch.int16).numpy() - lowest
    if entries.size and not 0 <= entries.min() <= entries.max() < 2**bits:
        found = f"{entries.min() + lowest} to {entries.max() + lowest}"
        raise ValueError(f"mask entries {found}: must be from {lowest} to {lowest + 2**bits - 1} to fit in {bits} bits")
    planes = [np.packbits((entries >> plane) & 1, bitorder="little") for plane in range(bits)]
    return torch.from_numpy(np.concatenate(planes))


def unpack(packed: torch.Tensor, shape: Sequence[int], bits: int, lowest: int = 0) -> torch.Tensor:
    """Invert ``pack``. The mask is int8, on the device of ``packed``."""
    planes = packed.reshape(bits, -1)
    entries = _unpack_plane(planes[0], math.prod(shape))
    for plane in range(1, bits):
        entries += _unpack_plane(planes[plane], len(entries)) << plane
    return (entries + lowest if lowest else entries).reshape(shape)


def _unpack_plane(packed: torch.Tensor, count: int) -> torch.Tensor:
    """Return the first ``count`` bits as int8. On the CPU, NumPy is faster than torch."""
    if packed.device.type == "cpu":
        return torch.from_numpy(np.unpackbits(packed.numpy(), count=count, bitorder="little").view(np.int8))
    bits = packed[:, None] >> torch.arange(8, dtype=torch.uint8, device=packed.device) & 1
    return bits.reshape(-1)[:count].to(torch.int8)

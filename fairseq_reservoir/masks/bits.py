"""Pack integer masks into bits, and unpack them. The functions for NumPy arrays need no torch."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import torch

Bytes = np.ndarray[Any, np.dtype[np.uint8]]
Entries = np.ndarray[Any, np.dtype[np.int8]]


def bytes_of(count: int, bits: int) -> int:
    """Return the size in bytes of a packed mask with ``count`` entries of ``bits`` bits."""
    return bits * math.ceil(count / 8)


def pack(mask: "torch.Tensor", bits: int, lowest: int = 0) -> "torch.Tensor":
    """Pack a mask of integers from ``lowest`` to ``lowest + 2**bits - 1`` into a uint8 vector of ``bytes_of(n, bits)`` bytes.

    n is the number of entries. The vector consists of ``bits`` planes, one after the other. For each entry e, plane b contains bit b of the
    number ``e - lowest``. Entry i is bit i % 8 of byte i // 8 of a plane.

    Raises:
        ValueError: an entry is outside the range.
    """
    import torch

    entries = mask.detach().cpu().reshape(-1).to(torch.int16).numpy() - lowest
    if entries.size and not 0 <= entries.min() <= entries.max() < 2**bits:
        found = f"{entries.min() + lowest} to {entries.max() + lowest}"
        raise ValueError(f"mask entries {found}: must be from {lowest} to {lowest + 2**bits - 1} to fit in {bits} bits")
    return torch.from_numpy(pack_array(entries, bits))


def pack_array(entries: np.ndarray[Any, Any], bits: int) -> Bytes:
    """Pack an array of integers from 0 to ``2**bits - 1``, as ``pack`` does. The integers are not checked."""
    return np.concatenate([np.packbits((entries >> plane) & 1, bitorder="little") for plane in range(bits)])


def unpack(packed: "torch.Tensor", shape: Sequence[int], bits: int, lowest: int = 0) -> "torch.Tensor":
    """Invert ``pack``. The mask is int8, on the device of ``packed``."""
    import torch

    if packed.device.type == "cpu":  # NumPy's unpacking is fastest
        return torch.from_numpy(unpack_array(packed.numpy(), shape, bits, lowest))
    planes, eight = packed.reshape(bits, -1), torch.arange(8, dtype=torch.uint8, device=packed.device)

    def unpacked(plane: int) -> torch.Tensor:
        return (planes[plane][:, None] >> eight & 1).reshape(-1)[: math.prod(shape)].to(torch.int8)

    entries = unpacked(0)
    for plane in range(1, bits):
        entries += unpacked(plane) << plane
    return (entries + lowest if lowest else entries).reshape(shape)


def unpack_array(packed: Bytes, shape: Sequence[int], bits: int, lowest: int = 0) -> Entries:
    """Unpack an array of bytes, as ``unpack`` does."""
    planes, count = packed.reshape(bits, -1), math.prod(shape)
    entries = np.unpackbits(planes[0], count=count, bitorder="little").view(np.int8)
    for plane in range(1, bits):
        entries += np.unpackbits(planes[plane], count=count, bitorder="little").view(np.int8) << plane
    return (entries + np.int8(lowest) if lowest else entries).reshape(shape)

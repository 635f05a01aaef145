"""Masks as packed bits."""

import math

import numpy as np
import torch


def bytes_of(count: int, bits: int) -> int:
    """Bytes that ``pack`` makes of ``count`` entries."""
    return bits * math.ceil(count / 8)


def pack(mask: torch.Tensor, bits: int, lowest: int = 0) -> torch.Tensor:
    """A mask of integers from ``lowest`` to ``lowest + 2**bits - 1`` as uint8, (bytes_of(count, bits),).

    One plane of single bits after the other, the lowest bit of ``entry - lowest`` first; within a plane, entry i is bit
    i % 8 of byte i // 8.

    Raises:
        ValueError: an entry is outside that range.
    """
    entries = mask.detach().cpu().reshape(-1).to(torch.int16).numpy() - lowest
    if entries.size and not 0 <= entries.min() <= entries.max() < 2**bits:
        found = f"{entries.min() + lowest} to {entries.max() + lowest}"
        raise ValueError(f"mask entries {found}: do not fit {bits} bits from {lowest}")
    planes = [np.packbits((entries >> plane) & 1, bitorder="little") for plane in range(bits)]
    return torch.from_numpy(np.concatenate(planes))


def unpack(packed: torch.Tensor, shape, bits: int, lowest: int = 0) -> torch.Tensor:
    """What ``pack`` was given, as int8 of ``shape``."""
    count = math.prod(shape)
    planes = packed.numpy().reshape(bits, -1)
    entries = np.full(count, lowest, dtype=np.int8)
    for plane in range(bits):
        entries += np.unpackbits(planes[plane], count=count, bitorder="little").astype(np.int8) << plane
    return torch.from_numpy(entries).reshape(shape)

"""A tensor taken apart into its numbers, in the order in which they lie in memory, and 16 bytes that say how to put it together."""

import struct

import torch
from torch import Tensor

_DTYPES = (torch.float32, torch.float16, torch.bfloat16, torch.float64)
# Type as kept, type as used, whether the second dimension lies outermost, spare; time, batch, dim.
_ABOUT = struct.Struct("<4B3I")
SIZE = _ABOUT.size


def pack(x: Tensor, dtype: torch.dtype | None = None) -> tuple[bytes, Tensor]:
    """(how to put it together, its numbers on the CPU: one dimension, perhaps the same memory).

    Sums depend on the order of numbers in memory, and fairseq's batches come as (batch, time, dim) seen as (time, batch, dim).

    Args:
        x: (time, batch, dim), of a floating type.
        dtype: type in which fp32 is to be kept; None for its own.
    """
    swapped = not x.is_contiguous() and x.transpose(0, 1).is_contiguous()
    flat = (x.transpose(0, 1) if swapped else x).detach().reshape(-1).cpu()
    if dtype is not None and x.dtype == torch.float32:
        flat = flat.to(dtype)
    about = _ABOUT.pack(_DTYPES.index(flat.dtype), _DTYPES.index(x.dtype), swapped, 0, *x.shape)
    return about, flat


def unpack(about: bytes, flat: Tensor) -> Tensor:
    """The tensor, in memory of its own."""
    _, dtype, swapped, _, time, batch, dim = _ABOUT.unpack(about)
    x = flat.to(_DTYPES[dtype], copy=True)
    return x.view(batch, time, dim).transpose(0, 1) if swapped else x.view(time, batch, dim)


def empty(about: bytes) -> Tensor:
    """Room for the numbers of a tensor."""
    dtype, _, _, _, time, batch, dim = _ABOUT.unpack(about)
    return torch.empty(time * batch * dim, dtype=_DTYPES[dtype])

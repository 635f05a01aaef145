"""Exact selection of the largest scores on an NVIDIA GPU: a radix select in Triton (``radix_kernels``).

The masks equal those of ``selection.select_largest``. Long rows are read five times, short rows once. The host never waits for
the device. Grids and buffers depend only on shapes and on the number of counts, so a CUDA graph can contain the selection.
If triton is missing or raises an error, ``selection`` uses torch for the rest of the process.
"""

import importlib.util
import logging
from functools import cache

import torch
from torch import Tensor

logger = logging.getLogger(__name__)

_DTYPES = (torch.float32, torch.half, torch.bfloat16)
_BLOCK = 2048  # scores that a program reads at once
_PROGRAMS = 2048  # this many programs keep the largest GPUs busy
_SHORT = 16384  # maximum length of a row that fits into registers
_PER_WARP = 1024  # scores in the registers of a warp

_failed = False


@cache
def _is_installed() -> bool:
    return importlib.util.find_spec("triton") is not None


def is_usable(scores: Tensor) -> bool:
    """Whether ``select`` supports the device, dtype and shape of the scores. False after ``select`` has failed once."""
    return (
        scores.device.type == "cuda"
        and torch.version.cuda is not None
        and not _failed
        and scores.dtype in _DTYPES
        and scores.shape[-1] < 2**30
        and _is_installed()
    )


def try_select(keys: Tensor, counts: list[int], magnitude: bool) -> Tensor | None:
    """Run ``select``. If triton raises an error, log it, return None, and let ``is_usable`` return False from then on.

    Raises:
        torch.OutOfMemoryError: the device has no memory for the mask. The next call tries triton again.
    """
    global _failed
    try:
        with torch.cuda.device(keys.device):
            return select(keys, counts, magnitude)
    except torch.OutOfMemoryError:
        raise
    except Exception as error:  # triton's compiler, driver and launcher raise errors of many classes
        _failed = True
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        logger.warning(f"selecting masks with torch, which is slower, because triton failed: {reason}")
        return None


def select(keys: Tensor, counts: list[int], magnitude: bool) -> Tensor:
    """Select the largest entries of each row, as ``selection.select_largest`` does for a single tensor.

    ``keys`` are scores, (rows, n), in float32, half or bfloat16. They are copied only if they are not contiguous.
    """
    keys = keys.detach().contiguous()
    rows, n = keys.shape
    mask = torch.empty(rows, n, dtype=torch.int8, device=keys.device)
    inner = [count for count in counts if 0 < count < n] if rows else []
    if n <= _SHORT:
        _select_short(keys, inner, magnitude, mask)
    else:
        _select_long(keys, inner, magnitude, mask)
    full = sum(count == n for count in counts)
    if not inner:
        mask.fill_(full)
    elif full:
        mask.add_(full)
    return mask.view(torch.bool) if len(counts) == 1 else mask


def _select_short(keys: Tensor, counts: list[int], magnitude: bool, mask: Tensor) -> None:
    from .radix_kernels import select_in_registers

    rows, n = keys.shape
    columns = max(16, 1 << max(0, n - 1).bit_length())
    together = max(1, _PER_WARP // columns)
    warps = max(1, columns // _PER_WARP)
    grid = (-(-rows // together),)
    for place, count in enumerate(counts):
        select_in_registers[grid](keys, mask, n, rows, count, magnitude, place > 0, together, columns, num_warps=warps)


def _select_long(keys: Tensor, counts: list[int], magnitude: bool, mask: Tensor) -> None:
    from .radix_kernels import BINS, LEVELS, count_digits, write_mask

    rows, n = keys.shape
    # A power of two, because kernels are compiled again for each number of blocks.
    blocks = 1 << max(0, -(-keys.numel() // (_BLOCK * _PROGRAMS)) - 1).bit_length()
    chunks = -(-n // (_BLOCK * blocks))
    planes = LEVELS - 1
    totals = torch.zeros(1 + planes * len(counts), rows, BINS, dtype=torch.int32, device=keys.device)
    parts = torch.empty(rows, chunks, BINS, dtype=torch.int32, device=keys.device)
    grid, sizes = (rows * chunks,), (n, rows, chunks)
    for place, count in enumerate(counts):
        plane = 1 + planes * place
        for level in range(1 if place else 0, LEVELS):
            count_digits[grid](keys, totals, parts, *sizes, count, plane, magnitude, level, blocks, _BLOCK)
        write_mask[grid](keys, totals, parts, mask, *sizes, count, plane, magnitude, place > 0, blocks, _BLOCK)

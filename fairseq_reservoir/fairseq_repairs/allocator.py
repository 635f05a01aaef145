"""Repair of glibc's allocator: the memory of one training step serves the next, and does not come from the kernel anew."""

import ctypes
import os

from ..errors import InputError, whole_number
from .repair import repair

# An environment variable: how many MiB of freed memory a process keeps at most, not counting gaps between what is in use.
KEPT_MIB = "FAIRSEQ_RESERVOIR_KEPT_MIB"
MOST_MIB = 2047  # what mallopt's int can say in bytes
# With these a user has set the allocator, or chosen another.
_SETTINGS = ("MALLOC_MMAP_MAX_", "MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_", "MALLOC_TOP_PAD_")
_TRIM_THRESHOLD, _MMAP_MAX = -1, -4  # of malloc.h


def users_own() -> str | None:
    """The environment variable with which the user has set or replaced the allocator, if any."""
    if "glibc.malloc." in os.environ.get("GLIBC_TUNABLES", ""):
        return "GLIBC_TUNABLES"
    if "malloc" in os.environ.get("LD_PRELOAD", ""):
        return "LD_PRELOAD"
    return next((name for name in _SETTINGS if name in os.environ), None)


def is_glibc() -> bool:
    try:
        return (os.confstr("CS_GNU_LIBC_VERSION") or "").startswith("glibc")
    except (AttributeError, ValueError, OSError):  # Windows, macOS
        return False


def most_kept() -> int | None:
    """MiB of freed memory that may be kept; None for any number.

    Raises:
        InputError: ``FAIRSEQ_RESERVOIR_KEPT_MIB`` is no whole number from 1 to 2047.
    """
    text = os.environ.get(KEPT_MIB, "").strip()
    if not text:
        return None
    number = whole_number(text)
    if not number or number > MOST_MIB:
        raise InputError(
            f"{KEPT_MIB} {text}: must be a whole number from 1 to {MOST_MIB}; FAIRSEQ_RESERVOIR_WITHOUT=kept-memory keeps none"
        )
    return number


@repair("kept-memory", needed=lambda: is_glibc() and users_own() is None)
def keep_freed_memory():
    """Keep the memory that a training step frees for the next one, instead of handing it to the kernel.

    glibc takes every tensor above 32 MiB, and many smaller ones, from the kernel and hands it back when it is freed: some 130,000
    page faults a step of a small Transformer, each of which the kernel answers with a page of zeros, a tenth of the step's time.
    What is computed stays the same to the last bit. A process holds on to its peak; ``FAIRSEQ_RESERVOIR_KEPT_MIB`` limits what it
    keeps at the end of its heap.

    Raises:
        InputError: as of ``most_kept``.
    """
    most, library = most_kept(), ctypes.CDLL(None)
    library.mallopt(_MMAP_MAX, 0)
    library.mallopt(_TRIM_THRESHOLD, -1 if most is None else most * 2**20)

"""Repair of glibc's allocator: reuse memory from one training step to the next."""

import ctypes
import os

from ..errors import InputError, whole_number
from .repair import repair

# Environment variable: maximum free memory at the end of the heap, in MiB. Gaps between used memory do not count.
KEPT_MIB = "FAIRSEQ_RESERVOIR_KEPT_MIB"
MOST_MIB = 2047  # largest number of bytes in mallopt's int
# Environment variables of glibc's allocator.
_SETTINGS = ("MALLOC_MMAP_MAX_", "MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_", "MALLOC_TOP_PAD_")
_TRIM_THRESHOLD, _MMAP_MAX = -1, -4  # in malloc.h


def users_own() -> str | None:
    """Return the name of the environment variable with which the user configures or replaces the allocator, or None."""
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
    """Return the maximum freed memory that the process keeps, in MiB, or None for no limit.

    Raises:
        InputError: ``FAIRSEQ_RESERVOIR_KEPT_MIB`` is not a whole number from 1 to 2047.
    """
    text = os.environ.get(KEPT_MIB, "").strip()
    if not text:
        return None
    number = whole_number(text)
    if not number or number > MOST_MIB:
        raise InputError(
            f"{KEPT_MIB} {text}: must be a whole number from 1 to {MOST_MIB}; to keep no memory, set FAIRSEQ_RESERVOIR_WITHOUT=kept-memory"
        )
    return number


@repair("kept-memory", needed=lambda: is_glibc() and users_own() is None)
def keep_freed_memory():
    """Keep freed memory for the next training step instead of returning it to the kernel.

    When a tensor above 32 MiB is freed, glibc returns its memory to the kernel. glibc also returns the memory of many smaller tensors. The
    next step requests all this memory again. A step of a small Transformer causes about 130,000 page faults, each of which fills a page
    with zeros. These page faults take a tenth of the step's time. With this repair a process never returns memory, unless
    ``FAIRSEQ_RESERVOIR_KEPT_MIB`` sets a limit. Results do not change.

    Raises:
        InputError: ``FAIRSEQ_RESERVOIR_KEPT_MIB`` is not valid.
    """
    most, library = most_kept(), ctypes.CDLL(None)
    library.mallopt(_MMAP_MAX, 0)
    library.mallopt(_TRIM_THRESHOLD, -1 if most is None else most * 2**20)

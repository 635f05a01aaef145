"""The flag ``--threads`` of every training."""

from dataclasses import dataclass
from typing import Optional

from .flags import Flags, option


@dataclass
class ThreadOptions(Flags):
    """The flag that the plugin adds to every training."""

    threads: Optional[str] = option(
        None,
        "threads on a CPU. On a busy machine two threads are slower than one. The number of threads changes the last bits of sums. "
        "Default: torch's choice, or OMP_NUM_THREADS",
        "N",
    )

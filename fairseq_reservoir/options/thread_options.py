"""The flag ``--threads`` of every training."""

from dataclasses import dataclass
from typing import Optional

from .flags import Flags, option


@dataclass
class ThreadOptions(Flags):
    """The flag that the plugin adds to every training."""

    threads: Optional[str] = option(
        None,
        "number of threads on a CPU. On a busy machine two threads are slower than one. This number changes the last bits of sums. "
        "Default: torch's choice, or OMP_NUM_THREADS",
        "N",
    )

"""The flag ``--threads`` of every training."""

from dataclasses import dataclass
from typing import Optional

from .flags import Flags, option


@dataclass
class ThreadOptions(Flags):
    """The flag that the plugin adds to every training."""

    threads: Optional[str] = option(
        None,
        "threads on a CPU: a number, or auto for as many as other processes leave cores free, measured every two seconds. "
        "On a busy machine two threads are slower than one. The number of threads changes the last bits of sums, so a run "
        "with auto cannot be repeated bit by bit. Default: torch's choice, or OMP_NUM_THREADS",
        "N",
    )

"""The flag that the plugin adds to every training."""

from dataclasses import dataclass, field
from typing import Optional

from fairseq.dataclass import FairseqDataclass


@dataclass
class ThreadOptions(FairseqDataclass):
    """The flag that the plugin adds to every training."""

    threads: Optional[str] = field(
        default=None,
        metadata={
            "help": "threads on a CPU: a number, or auto, as many as other processes leave cores free, looked at every two seconds. "
            "Two threads of a busy machine are slower than one. The number changes the last bits of sums, so a run "
            "with auto cannot be repeated to the bit. Default: torch's choice, or OMP_NUM_THREADS",
            "metavar": "N",
        },
    )

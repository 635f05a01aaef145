"""The flag ``--cuda-graphs`` of fairseq-generate and fairseq-interactive."""

from dataclasses import dataclass

from .flags import Flags, option

# Environment variable equivalent of the flag. It is inherited by child processes.
VARIABLE = "FAIRSEQ_RESERVOIR_GENERATION_GRAPHS"
# Value of the variable for tests: run the captured steps on a CPU too, without graphs.
ON_CPU = "cpu"


@dataclass
class GenerationGraphOptions(Flags):
    """The flag of commands that translate. The hypotheses stay the same."""

    cuda_graphs: bool = option(
        False,
        "search on a CUDA device with one CUDA graph per step of the decoder, because a small model otherwise waits for Python. "
        "Hypotheses are the same except for rounding. Works for one Transformer of fairseq or of this package with beam search; other "
        "models and searches run as without the flag, and the log contains the reason. Has no effect on a CPU",
    )

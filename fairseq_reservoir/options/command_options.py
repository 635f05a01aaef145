"""The flags that this package adds to fairseq's commands, for every model."""

from dataclasses import dataclass
from typing import Optional

from .flags import Flags, option

# Environment variable with the effect of --cuda-graphs in commands that translate. Child processes inherit it.
GENERATION_GRAPHS = "FAIRSEQ_RESERVOIR_GENERATION_GRAPHS"
# Value of the variable for tests: run the captured steps on a CPU too, without graphs.
ON_CPU = "cpu"


@dataclass
class ThreadOptions(Flags):
    """The flag for the number of threads, in every training."""

    threads: Optional[str] = option(
        None,
        "number of threads on a CPU. On a busy machine two threads are slower than one. The number changes the rounding of sums. "
        "Default: OMP_NUM_THREADS if it is set, else torch's choice",
        "N",
    )


@dataclass
class DictionaryOptions(Flags):
    """The flag that allows a training to start from a model with another dictionary."""

    allow_other_dictionary: bool = option(
        False,
        "start from a model whose dictionary has as many entries as the dictionary in DATA, but other words or another order. Each word "
        "then starts with the vector of another word, so use this flag only if the vectors will be trained again. Without this flag, "
        "such a model is refused by --finetune-from-model, --restore-file with --reset-optimizer, --start-encoder-from, "
        "--start-decoder-from and --mask-embeddings-from",
    )


@dataclass
class GenerationGraphOptions(Flags):
    """The flag of fairseq-generate and fairseq-interactive for CUDA graphs."""

    cuda_graphs: bool = option(
        False,
        "on a GPU, run each step of the decoder as one CUDA graph. Without graphs, a small model waits for Python. Hypotheses are the "
        "same except for rounding. The flag supports beam search with a single model, which must be a Transformer of fairseq or of this "
        "package. Other searches run without graphs, and the log gives the reason. No effect on a CPU",
    )

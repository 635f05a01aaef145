"""The flags of all our models for faster training."""

from dataclasses import dataclass

from .flags import Flags, option


@dataclass
class FastOptions(Flags):
    """The flags of all our models for faster training. The trained models are the same except for rounding and random numbers."""

    fast: bool = option(
        False,
        "train the same model faster. Dropout uses a fast random number generator. On a CPU, the loss skips padding. Attention and Adam "
        "run in one kernel each. Losses differ by rounding, and with dropout also because other random numbers are drawn. The log and "
        "fairseq-reservoir plan list the active parts. Checkpoints do not depend on the flag",
    )
    cuda_graphs: bool = option(
        False,
        "train on a GPU with CUDA graphs: batches are padded to a few shapes, and the forward and backward pass of each shape are recorded "
        "once and then replayed without the host. Several times faster for small models. Works with and without --fast. No effect without "
        "a GPU. If a training cannot use the flag, the log gives the reason. Checkpoints do not depend on the flag",
    )
    cuda_graph_buckets: int = option(
        40,
        "largest number of batch shapes for --cuda-graphs. More shapes need less padding, but more time and memory to record. Default: 40",
        "N",
        at_least=1,
        needs=("cuda_graphs",),
    )

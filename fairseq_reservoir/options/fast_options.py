"""The flag ``--fast`` of all our models."""

from dataclasses import dataclass

from .flags import Flags, option


@dataclass
class FastOptions(Flags):
    """The flag of all our models that changes how they are trained. The models stay the same."""

    fast: bool = option(
        False,
        "train the same model with fewer passes: dropout uses a fast random number generator, on a CPU the loss is computed only for "
        "tokens that are not padding, attention and Adam run in one kernel each. Losses differ by rounding, and with dropout also by "
        "other random numbers. The log and fairseq-reservoir plan list the active parts. Checkpoints do not depend on the flag",
    )
    cuda_graphs: bool = option(
        False,
        "train on a GPU with CUDA graphs: batches are padded to a few shapes, and the forward and backward pass of each shape are recorded "
        "once and then replayed without the host. Several times faster for small models. Works with and without --fast; without a GPU it "
        "has no effect. The log says if a training cannot use it, and why. Checkpoints do not depend on the flag",
    )
    cuda_graph_buckets: int = option(
        40,
        "largest number of batch shapes for --cuda-graphs. More shapes need less padding, but more time and memory to record. Default: 40",
        "N",
        at_least=1,
        needs=("cuda_graphs",),
    )

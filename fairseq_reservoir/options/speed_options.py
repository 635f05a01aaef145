"""The flags for faster training: ``--fast``, CUDA graphs, and the cache of a frozen prefix of the encoder."""

from dataclasses import dataclass
from typing import Any, Optional

from .flags import Flags, option

MEMORY = "memory"
# Value of --freeze-cache-dtype -> name of the torch dtype to which the cache rounds an fp32 output; None stores it exactly.
DTYPES = {"exact": None, "bf16": "bfloat16", "fp16": "float16"}


def regenerate_option(**rules: Any) -> Any:
    """Return the dataclass field of ``--regenerate-weights``. ``rules`` are the arguments of ``option`` that restrict the flag."""
    return option(
        False,
        "when translating or scoring, do not keep random tensors in memory. The random tensors of a layer are drawn from the seed when the "
        "layer runs, and released when the next layer runs. Results stay the same to the last bit. With fairseq-generate, "
        "fairseq-interactive and fairseq-eval-lm, use --model-overrides \"{'regenerate_weights': True}\". The flag is refused in training",
        **rules,
    )


@dataclass
class FastOptions(Flags):
    """The flags of all our models for faster training and for inference in less memory. Except for rounding and random numbers, the flags
    do not change results.
    """

    regenerate_weights: bool = regenerate_option()

    fast: bool = option(
        False,
        "train the same model faster. Dropout uses a fast random number generator. On a CPU, the loss skips padding. Attention and Adam "
        "run in one kernel each. With the flag, losses differ slightly because of rounding and, if there is dropout, because of other "
        "random numbers. "
        "The log and fairseq-reservoir plan list the active optimizations. Checkpoints do not depend on the flag",
    )
    cuda_graphs: bool = option(
        False,
        "train on a GPU with CUDA graphs: batches are padded to a few shapes, and the forward and backward pass of each shape are "
        "recorded once and then replayed without waiting for Python. Several times faster for small models. Works with and without "
        "--fast. No effect without a GPU. If a training cannot use the flag, the log gives the reason. Checkpoints do not depend on the "
        "flag",
    )
    cuda_graph_buckets: int = option(
        40,
        "largest number of batch shapes for --cuda-graphs. More shapes need less padding, but more time and memory to record. Default: 40",
        "N",
        at_least=1,
        needs=("cuda_graphs",),
    )


@dataclass
class FreezeCacheOptions(FastOptions):
    """The flags for an encoder with frozen embeddings and frozen bottom layers."""

    freeze_cache: Optional[str] = option(
        None,
        "if the embeddings and the first layers of the encoder are frozen and have no dropout, compute their output once for each batch "
        "and store it in memory for later epochs. Losses and weights stay the same to the last bit",
        "memory",
    )
    freeze_cache_mib: int = option(
        4096,
        "largest size of the cache of --freeze-cache, in MiB. Outputs that do not fit are computed every time. Default: 4096",
        "N",
        at_least=1,
        needs=("freeze_cache",),
    )
    freeze_cache_dtype: str = option(
        "exact",
        "dtype in which --freeze-cache stores fp32 outputs. exact: unchanged. bf16, fp16: rounded, so that they need half the "
        "memory. The first epoch already uses the rounded outputs. Default: exact",
        "TYPE",
        choices=tuple(DTYPES),
        needs=("freeze_cache",),
    )
    frozen_prefix_no_dropout: bool = option(
        False,
        "disable dropout in frozen embeddings and frozen first layers of the encoder, with or without --freeze-cache",
    )

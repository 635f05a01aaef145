"""The flags for a frozen prefix, which is the frozen layers at the start of an encoder: cache its output, and disable its dropout."""

from dataclasses import dataclass
from typing import Optional

from .fast_options import FastOptions
from .flags import option

MEMORY = "memory"
# Value of --freeze-cache-dtype -> name of the torch dtype to which the cache rounds an fp32 output; None stores it exactly.
DTYPES = {"exact": None, "bf16": "bfloat16", "fp16": "float16"}


@dataclass
class FreezeCacheOptions(FastOptions):
    """The flags for an encoder that is frozen from its input up to some layer."""

    freeze_cache: Optional[str] = option(
        None,
        "if the first layers of the encoder and its embeddings are frozen and have no dropout, compute their output once for each batch "
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
        "number type in which --freeze-cache stores fp32 outputs. exact: unchanged. bf16, fp16: rounded, which halves the memory; the "
        "first epoch already uses the rounded outputs. Default: exact",
        "TYPE",
        choices=tuple(DTYPES),
        needs=("freeze_cache",),
    )
    frozen_prefix_no_dropout: bool = option(
        False,
        "no dropout in the embeddings and first layers of the encoder if they are frozen, with or without --freeze-cache",
    )

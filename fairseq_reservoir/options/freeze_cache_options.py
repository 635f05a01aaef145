"""The flags of a frozen prefix: a cache of its output for later epochs, and no dropout in it."""

from dataclasses import dataclass
from typing import Optional

from .fast_options import FastOptions
from .flags import option

MEMORY = "memory"
# How the cache stores an fp32 output: exactly, or rounded to the type in torch of this name.
DTYPES = {"exact": None, "bf16": "bfloat16", "fp16": "float16"}


@dataclass
class FreezeCacheOptions(FastOptions):
    """The flags for an encoder that is frozen from its input up to some layer."""

    freeze_cache: Optional[str] = option(
        None,
        "where everything from the encoder's input to some layer is frozen and has no dropout, compute that layer's output once for "
        "each batch and keep it in memory for later epochs. Losses and weights stay the same to the last bit",
        "memory",
    )
    freeze_cache_mib: int = option(
        4096,
        "the most that --freeze-cache keeps, in MiB; outputs beyond it are computed each time. Default: 4096",
        "N",
        at_least=1,
        needs=("freeze_cache",),
    )
    freeze_cache_dtype: str = option(
        "exact",
        "how --freeze-cache stores fp32: exact, or rounded to bf16 or fp16 in half the space, from the first epoch on. Default: exact",
        "TYPE",
        choices=tuple(DTYPES),
        needs=("freeze_cache",),
    )
    frozen_prefix_no_dropout: bool = option(
        False,
        "no dropout from the encoder's input up to the last layer below which everything is frozen, with or without --freeze-cache",
    )

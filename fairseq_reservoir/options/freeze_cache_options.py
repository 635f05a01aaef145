"""The flags of a frozen prefix: its output kept from epoch to epoch, and no dropout in it."""

from dataclasses import dataclass
from typing import Any, Optional

from ..errors import InputError, flag_of
from .fast_options import FastOptions
from .flags import option

MEMORY = "memory"
# What of an fp32 output is kept: all of it, or the name of a type in torch that it is rounded to.
DTYPES = {"exact": None, "bf16": "bfloat16", "fp16": "float16"}


@dataclass
class FreezeCacheOptions(FastOptions):
    """The flags for an encoder of which everything from the input to some layer is frozen."""

    freeze_cache: Optional[str] = option(
        None,
        "where everything from the encoder's input to some layer is frozen and has no dropout, work out that layer's output once for "
        "each batch and keep it for later epochs: memory, or a file, which all processes of this machine share and later trainings use "
        "again. Losses and weights stay the same to the last bit",
        "memory|FILE",
    )
    freeze_cache_mib: int = option(
        4096, "most that --freeze-cache keeps, in MiB; what is over is worked out anew each time. Default: 4096", "N"
    )
    freeze_cache_dtype: str = option(
        "exact",
        "how --freeze-cache keeps fp32: exact, or rounded to bf16 or fp16 in half the space, from the first epoch on. Default: exact",
        "TYPE",
    )
    frozen_prefix_no_dropout: bool = option(
        False,
        "no dropout from the encoder's input up to the last layer below which everything is frozen, with or without --freeze-cache",
    )


def check_cache(options: Any) -> None:
    """Refuses values that no cache can have, and flags of a cache where none is asked for.

    Raises:
        InputError: one line with the flag.
    """
    if options.freeze_cache_dtype not in DTYPES:
        raise InputError(f"--freeze-cache-dtype {options.freeze_cache_dtype!r}: choose from {', '.join(DTYPES)}")
    if options.freeze_cache_mib < 1:
        raise InputError(f"--freeze-cache-mib {options.freeze_cache_mib}: must be at least 1")
    for name in ("freeze_cache_mib", "freeze_cache_dtype") if not options.freeze_cache else ():
        value = getattr(options, name)
        if value != getattr(FreezeCacheOptions, name):
            raise InputError(f"{flag_of(name)} {value}: has no effect without --freeze-cache")

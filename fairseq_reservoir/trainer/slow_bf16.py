"""Warn before a training in bf16 on a processor without bf16 multiplication."""

import logging

import torch

from ..fairseq_repairs.cpu_launch import is_first_process, uses_cpu
from ..options.layer_options import FrozenLayerOptions
from ..options.reading import read

logger = logging.getLogger(__name__)

# torch's names of x86 and ARM instructions that multiply in bf16. Plain AVX-512 only converts bf16, although torch counts it as support.
MULTIPLIES_IN_BF16 = ("avx512_bf16", "amx_bf16", "avx10_2", "bf16", "sve_bf16")


def multiplies_in_bf16() -> bool | None:
    """Whether the processor multiplies in bf16; None with a torch that has no ``torch.cpu.get_capabilities``."""
    capabilities: dict = getattr(torch.cpu, "get_capabilities", dict)()
    return any(capabilities.get(name) for name in MULTIPLIES_IN_BF16) if capabilities else None


def warn_of_slow_bf16(cfg) -> None:
    """Log a warning on the first rank if a run on the CPU uses bf16 and the processor would emulate it."""
    flags = {
        "--bf16": cfg.common.bf16 and not cfg.common.memory_efficient_bf16,  # --memory-efficient-bf16 sets --bf16 too
        "--memory-efficient-bf16": cfg.common.memory_efficient_bf16,
        "--frozen-dtype bf16": read(FrozenLayerOptions, cfg.model).frozen_dtype == "bf16",
    }
    given_flags = [flag for flag, given in flags.items() if given]
    if given_flags and is_first_process(cfg) and uses_cpu(cfg) and multiplies_in_bf16() is False:
        logger.warning(
            "%s: this processor has no bf16 multiplication (no avx512_bf16, amx_bf16 or ARM bf16). Emulated bf16 is many times slower than"
            " fp32; remove %s on this machine",
            " ".join(given_flags), "these flags" if len(given_flags) > 1 else "the flag",
        )  # fmt: skip

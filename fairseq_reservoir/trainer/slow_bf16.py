"""A warning before training in bf16 on a processor that has no instructions for it."""

import logging

import torch

from ..fairseq_repairs.cpu_launch import is_first_process, uses_cpu
from ..options.layer_options import FrozenLayerOptions
from ..options.reading import read

logger = logging.getLogger(__name__)

# torch's names of instructions of x86 and ARM. AVX-512 without avx512_bf16 only converts bf16; torch counts that as support.
MULTIPLIES_IN_BF16 = ("avx512_bf16", "amx_bf16", "avx10_2", "bf16", "sve_bf16")


def multiplies_in_bf16() -> bool | None:
    """Whether the processor multiplies in bf16; None with a torch that has no ``torch.cpu.get_capabilities``."""
    capabilities: dict = getattr(torch.cpu, "get_capabilities", dict)()
    return any(capabilities.get(name) for name in MULTIPLIES_IN_BF16) if capabilities else None


def warn_of_slow_bf16(cfg) -> None:
    """Log a warning on the first rank if a run on the CPU uses bf16 and the processor would emulate it."""
    flags = {
        "--bf16": cfg.common.bf16 and not cfg.common.memory_efficient_bf16,  # which sets both
        "--memory-efficient-bf16": cfg.common.memory_efficient_bf16,
        "--frozen-dtype bf16": read(FrozenLayerOptions, cfg.model).frozen_dtype == "bf16",
    }
    given_flags = [flag for flag, given in flags.items() if given]
    if given_flags and is_first_process(cfg) and uses_cpu(cfg) and multiplies_in_bf16() is False:
        logger.warning(
            "%s: this processor cannot multiply in bf16 (neither avx512_bf16 nor amx_bf16, or bf16 of ARM) and emulates it, many times"
            " slower than fp32; leave %s out here",
            " ".join(given_flags), "them" if len(given_flags) > 1 else "it",
        )  # fmt: skip

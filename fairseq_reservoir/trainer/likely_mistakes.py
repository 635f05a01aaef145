"""Before a training, warn about flags that are valid but probably mistakes."""

import logging

import torch

from ..fairseq_repairs.cpu_launch import is_first_process, uses_cpu
from ..options.layer_options import FrozenLayerOptions
from ..options.reading import read
from ..options.supermask_options import MaskOptions, mask_choices
from ..plan.mask_choices import MaskChoices

logger = logging.getLogger(__name__)

# Largest difference between two keep ratios that does not cause a warning.
_TOLERANCE = 0.001
# torch's names of x86 and ARM instructions that multiply in bf16. Plain AVX-512 only converts bf16, although torch counts it as support.
MULTIPLIES_IN_BF16 = ("avx512_bf16", "amx_bf16", "avx10_2", "bf16", "sve_bf16")


def warn_of_likely_mistakes(cfg) -> None:
    """Log one line for each probable mistake, on the first rank."""
    if is_first_process(cfg):
        for warning in (*slow_bf16(cfg), *likely_mistakes(cfg)):
            logger.warning("%s", warning)


def multiplies_in_bf16() -> bool | None:
    """Whether the processor multiplies in bf16; None if this torch version lacks ``torch.cpu.get_capabilities``."""
    capabilities: dict = getattr(torch.cpu, "get_capabilities", dict)()
    return any(capabilities.get(name) for name in MULTIPLIES_IN_BF16) if capabilities else None


def slow_bf16(cfg) -> list[str]:
    """Return a warning if a run on the CPU uses bf16 and the processor would emulate it."""
    flags = {
        "--bf16": cfg.common.bf16 and not cfg.common.memory_efficient_bf16,  # --memory-efficient-bf16 sets --bf16 too
        "--memory-efficient-bf16": cfg.common.memory_efficient_bf16,
        "--frozen-dtype bf16": read(FrozenLayerOptions, cfg.model).frozen_dtype == "bf16",
    }
    given = [flag for flag, is_given in flags.items() if is_given]
    if not (given and uses_cpu(cfg) and multiplies_in_bf16() is False):
        return []
    return [
        f"{' '.join(given)}: this processor has no bf16 multiplication (no avx512_bf16, amx_bf16 or ARM bf16). Emulated bf16 is many times "
        f"slower than fp32; remove {'these flags' if len(given) > 1 else 'the flag'} on this machine"
    ]


def likely_mistakes(cfg) -> list[str]:
    """Return a warning if the mask keep schedule ends after the training, and one if fairseq would select the lowest BLEU or accuracy."""
    warnings = []
    last = cfg.optimization.max_update - 1
    masks = read(MaskOptions, cfg.model)
    if masks.mask_keep_schedule and last >= 0:
        choices = MaskChoices(**mask_choices(masks))
        kept = float(choices.keep_ratios_at(last)[0])
        if kept > choices.keep_ratio + _TOLERANCE:
            warnings.append(
                f"--mask-keep-schedule {masks.mask_keep_schedule}: ends after --max-update {last + 1}; the trained model, its checkpoints"
                f" and its exports will keep a fraction {kept:.3g} of the weights, not {choices.keep_ratio:g}"
            )
    metric = str(cfg.checkpoint.best_checkpoint_metric)
    if metric.endswith(("bleu", "accuracy")) and not cfg.checkpoint.maximize_best_checkpoint_metric:
        warnings.append(
            f"--best-checkpoint-metric {metric}: add --maximize-best-checkpoint-metric, because fairseq would save the checkpoint with the"
            " lowest value as checkpoint_best.pt"
        )
    return warnings

"""Warnings about valid flags that are probably mistakes."""

import logging

from ..fairseq_repairs.cpu_launch import is_first_process
from ..options.reading import read
from ..options.supermask_options import MaskOptions, mask_choices
from ..plan.mask_choices import MaskChoices

logger = logging.getLogger(__name__)

# Largest difference between keep ratios without a warning.
_LITTLE = 0.001


def warn_of_likely_mistakes(cfg) -> None:
    """Log one line for each probable mistake, on the first rank."""
    if is_first_process(cfg):
        for warning in likely_mistakes(cfg):
            logger.warning("%s", warning)


def likely_mistakes(cfg) -> list[str]:
    """Warnings for a keep schedule that is longer than the training, and for the lowest BLEU or accuracy as the best."""
    warnings = []
    last = cfg.optimization.max_update - 1
    masks = read(MaskOptions, cfg.model)
    if masks.mask_keep_schedule and last >= 0:
        choices = MaskChoices(**mask_choices(masks))
        kept = float(choices.keep_ratios_at(last)[0])
        if kept > choices.keep_ratio + _LITTLE:
            warnings.append(
                f"--mask-keep-schedule {masks.mask_keep_schedule}: continues after --max-update {last + 1}; the trained model keeps"
                f" {kept:.3g} of its weights and not {choices.keep_ratio:g}, in checkpoints and exports too"
            )
    metric = str(cfg.checkpoint.best_checkpoint_metric)
    if metric.endswith(("bleu", "accuracy")) and not cfg.checkpoint.maximize_best_checkpoint_metric:
        warnings.append(
            f"--best-checkpoint-metric {metric}: without --maximize-best-checkpoint-metric fairseq takes the lowest for the best, and keeps"
            " that checkpoint as checkpoint_best.pt"
        )
    return warnings

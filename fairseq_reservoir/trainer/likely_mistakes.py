"""Warnings about valid flags that are probably mistakes."""

import logging

from ..fairseq_repairs.cpu_launch import is_first_process
from ..options.reading import read
from ..options.supermask_options import MaskOptions, mask_choices
from ..plan.mask_choices import MaskChoices

logger = logging.getLogger(__name__)

# Largest difference between two keep ratios that does not cause a warning.
_TOLERANCE = 0.001


def warn_of_likely_mistakes(cfg) -> None:
    """Log one line for each probable mistake, on the first rank."""
    if is_first_process(cfg):
        for warning in likely_mistakes(cfg):
            logger.warning("%s", warning)


def likely_mistakes(cfg) -> list[str]:
    """Return warnings for a keep schedule longer than the training, and for a BLEU or accuracy that is minimised."""
    warnings = []
    last = cfg.optimization.max_update - 1
    masks = read(MaskOptions, cfg.model)
    if masks.mask_keep_schedule and last >= 0:
        choices = MaskChoices(**mask_choices(masks))
        kept = float(choices.keep_ratios_at(last)[0])
        if kept > choices.keep_ratio + _TOLERANCE:
            warnings.append(
                f"--mask-keep-schedule {masks.mask_keep_schedule}: ends after --max-update {last + 1}; the trained model, its checkpoints"
                f" and its exports will keep a share {kept:.3g} of the weights, not {choices.keep_ratio:g}"
            )
    metric = str(cfg.checkpoint.best_checkpoint_metric)
    if metric.endswith(("bleu", "accuracy")) and not cfg.checkpoint.maximize_best_checkpoint_metric:
        warnings.append(
            f"--best-checkpoint-metric {metric}: without --maximize-best-checkpoint-metric fairseq treats the lowest value as the best"
            " and saves that checkpoint as checkpoint_best.pt"
        )
    return warnings

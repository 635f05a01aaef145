"""Warnings before training of flags that do what they say and hardly what was meant."""

import logging

from ..fairseq_repairs.cpu_launch import is_first_process
from ..options.reading import read
from ..options.supermask_options import MaskOptions, mask_choices
from ..plan.mask_choices import MaskChoices

logger = logging.getLogger(__name__)

# A share of weights that makes no difference to anybody.
_LITTLE = 0.001


def warn_of_likely_mistakes(cfg) -> None:
    """One line each, by the first process."""
    if is_first_process(cfg):
        for warning in likely_mistakes(cfg):
            logger.warning("%s", warning)


def likely_mistakes(cfg) -> list[str]:
    """What to warn of: a keep schedule that the training does not finish, the worst BLEU or accuracy taken for the best."""
    said = []
    last = cfg.optimization.max_update - 1
    masks = read(MaskOptions, cfg.model)
    if masks.mask_keep_schedule and last >= 0:
        choices = MaskChoices(**mask_choices(masks))
        kept = float(choices.keep_ratios_at(last)[0])
        if kept > choices.keep_ratio + _LITTLE:
            said.append(
                f"--mask-keep-schedule {masks.mask_keep_schedule}: goes on after --max-update {last + 1}; the trained model keeps"
                f" {kept:.3g} of its weights and not {choices.keep_ratio:g}, in checkpoints and exports too"
            )
    metric = str(cfg.checkpoint.best_checkpoint_metric)
    if metric.endswith(("bleu", "accuracy")) and not cfg.checkpoint.maximize_best_checkpoint_metric:
        said.append(
            f"--best-checkpoint-metric {metric}: without --maximize-best-checkpoint-metric fairseq takes the lowest for the best, and keeps"
            " that checkpoint as checkpoint_best.pt"
        )
    return said

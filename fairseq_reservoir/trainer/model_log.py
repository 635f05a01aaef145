"""Log the slot table of a model (which layers are trained or frozen), and masked modules with NaN scores."""

import logging

from ..masks.masked_weight import nan_scores, refuse_moving_masks
from ..options.component_options import ComponentOptions
from ..options.reading import read
from ..plan.slot_table import refuse_all_frozen

logger = logging.getLogger(__name__)


def log_slot_table(trainer) -> None:
    """Log the slot table of the trainer's model.

    Raises:
        InputError: no parameter of the model is trained, or a frozen mask would still change.
    """
    model, flags = trainer.get_model(), read(ComponentOptions, trainer.cfg.model)
    table = getattr(model, "slot_table", None)
    if table is not None and not any(parameter.requires_grad for parameter in model.parameters()):
        # The model may be a RoBERTa without a classification head, and the task has not added a head.
        refuse_all_frozen(flags.freeze, flags.freeze_except)
    refuse_moving_masks(model, f"--freeze {flags.freeze}")
    if table is not None:
        logger.info("what is trained and what is frozen:\n%s", table.short_text())


def report_nan_scores(trainer) -> None:
    """Log the masked modules that have a NaN score. The masks themselves contain no NaN. Synchronises with the device."""
    names = nan_scores(trainer.get_model())
    if names:
        logger.error("update %d: NaN in the scores of %s", trainer.get_num_updates(), ", ".join(names))

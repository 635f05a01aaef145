"""Repair of ``--lr-scheduler reduce_lr_on_plateau``: resume the schedule with its whole state."""

from fairseq.optim.lr_scheduler import LR_SCHEDULER_REGISTRY
from fairseq.optim.lr_scheduler.reduce_lr_on_plateau import ReduceLROnPlateauLRSchedule

from .repair import repair

_NAME = "reduce_lr_on_plateau"
_COUNTERS = ("num_bad_epochs", "cooldown_counter")


class ResumableReduceLROnPlateau(ReduceLROnPlateauLRSchedule):
    """fairseq's ``reduce_lr_on_plateau`` that also saves the counters of torch's scheduler. It can load states without counters."""

    def state_dict(self):
        return super().state_dict() | {name: getattr(self.lr_scheduler, name) for name in _COUNTERS}

    def load_state_dict(self, state_dict):
        super().load_state_dict(state_dict)
        for name in _COUNTERS:
            setattr(self.lr_scheduler, name, state_dict.get(name, 0))


@repair("plateau")
def remember_bad_epochs():
    """Keep the number of bad epochs of ``reduce_lr_on_plateau`` in a resumed run (fairseq PR #4071).

    fairseq saves the best validation loss, but not the number of epochs since then. It also saves an epoch's checkpoint before it passes
    the epoch's validation loss to the schedule. In a resumed run, the schedule therefore never receives this loss.
    ``ReservoirTrainer`` calls ``step_after_epoch``.
    """
    LR_SCHEDULER_REGISTRY[_NAME] = ResumableReduceLROnPlateau


def step_after_epoch(trainer, extra_state: dict | None) -> None:
    """Pass the validation loss in a loaded checkpoint to the schedule, if an uninterrupted run would have passed it.

    At the end of an epoch, an uninterrupted run first saves the checkpoint. It then passes the loss if ``--validate-interval`` or
    ``--validate-interval-updates`` requires a validation. If a validation was made only because the run stopped, its loss is not passed.
    """
    if not remember_bad_epochs.is_applied or not extra_state:
        return
    place, loss, dataset = extra_state["train_iterator"], extra_state.get("val_loss"), trainer.cfg.dataset
    # If the checkpoint has no optimizer state, training starts at update 0 with a new schedule.
    if loss is None or place.get("iterations_in_epoch") or not trainer.get_num_updates():
        return
    epoch, interval = place["epoch"] - 1, dataset.validate_interval_updates
    is_due = epoch % dataset.validate_interval == 0 or (interval > 0 and trainer.get_num_updates() % interval == 0)
    if is_due and isinstance(trainer.lr_scheduler, ResumableReduceLROnPlateau):
        trainer.lr_step(epoch, loss)

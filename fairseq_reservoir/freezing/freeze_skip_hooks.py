"""Functions of the trainer for ``--optimizer freeze_skip``, and support for this optimizer with ``--amp``."""

import logging

from fairseq import optim

from ..layers.quant_noise import protect_frozen
from .freeze_skip import PREFIX, FreezeSkip
from .freeze_skip_flags import check_flags, schedule_of

logger = logging.getLogger(__name__)

_SCALER = "amp_scaler"


def use_resumable_amp() -> None:
    """Replace fairseq's optimizer for ``--amp`` by a subclass that also saves the freeze schedule and the loss scale.

    fairseq's other optimizer wrappers already save the state of their inner optimizer and the loss scale. The subclass has the name of
    fairseq's class, because checkpoints store this name.
    """

    class AMPOptimizer(optim.AMPOptimizer):
        is_resumable = True

        def state_dict(self):
            return self.fp32_optimizer.state_dict() | {_SCALER: self.scaler.state_dict()}

        def load_state_dict(self, state_dict, optimizer_overrides=None):
            inner = self.fp32_optimizer
            if state_dict.get(_SCALER):  # missing in checkpoints of plain fairseq, and empty without a GPU
                self.scaler.load_state_dict(state_dict[_SCALER])
            state_dict = {key: value for key, value in state_dict.items() if key != _SCALER}
            # Early checkpoints of this plugin do not have the flags of their schedule.
            if isinstance(inner, FreezeSkip):
                state_dict = {PREFIX: inner.given_flags()} | state_dict
            inner.load_state_dict(state_dict, optimizer_overrides)

    if not hasattr(optim.AMPOptimizer, "is_resumable"):
        optim.AMPOptimizer = AMPOptimizer


def make_schedule(trainer, cfg, model) -> None:
    """Build the freeze schedule of a training. Call this before fairseq wraps the model, because the wrapper renames its parameters."""
    check_flags(cfg)
    trainer.freeze_schedule = schedule_of(cfg.optimizer, model, cfg.common.seed)
    trainer.scheduled = (
        {n: p for n, p in model.named_parameters() if p.requires_grad} if trainer.freeze_schedule else {}
    )
    if trainer.freeze_schedule:
        logger.info("freeze schedule:\n%s", trainer.freeze_schedule)
        protect_frozen(model)


def describe_for_plan(model, args, cfg) -> str:
    """Describe the freeze schedule that a training with these flags would have. Return "" if it would have no schedule.

    Raises:
        InputError: the training would refuse the flags.
    """
    check_flags(cfg)
    schedule = schedule_of(args, model, args.seed)
    return f"freeze schedule:\n{schedule}" if schedule else ""


def thaw_scheduled(trainer) -> None:
    """Make every parameter of the schedule trainable. fairseq then builds the optimizer, which contains only trainable parameters."""
    for parameter in trainer.scheduled.values():
        parameter.requires_grad_(True)


def bind_optimizer(trainer) -> None:
    """Pass the schedule and the names of the parameters to the optimizer, and apply the schedule of the current update."""
    if trainer.freeze_schedule:
        moved = dict(trainer.get_model().named_parameters())
        trainer.scheduled = {name: moved[name] for name in trainer.scheduled}
        _inner(trainer._optimizer).bind(trainer.freeze_schedule, trainer.scheduled)
        _inner(trainer._optimizer).apply_schedule(trainer.get_num_updates())


def follow_update(trainer, num_updates: int) -> None:
    """Freeze and unfreeze parameters as the freeze schedule requires after ``num_updates`` updates."""
    if trainer.freeze_schedule:
        _inner(trainer.optimizer).apply_schedule(num_updates)


def _inner(optimizer):
    """Return the ``FreezeSkip`` optimizer inside fairseq's wrappers for half precision."""
    while not isinstance(optimizer, FreezeSkip):
        optimizer = next(
            getattr(optimizer, name)
            for name in ("fp32_optimizer", "wrapped_optimizer", "_optimizer")
            if hasattr(optimizer, name)
        )
    return optimizer

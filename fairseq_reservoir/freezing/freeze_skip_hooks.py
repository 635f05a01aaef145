"""Parts of the trainer for ``--optimizer freeze_skip``, and the state of that optimizer under ``--amp``."""

import logging

from fairseq.dataclass.utils import convert_namespace_to_omegaconf

from ..layers.quant_noise import spare_frozen
from .freeze_auto import FreezeAuto, check_model
from .freeze_skip import PREFIX, FreezeSkip
from .freeze_skip_flags import check_flags, schedule_of

logger = logging.getLogger(__name__)

_SCALER = "amp_scaler"


def state_inside_amp(state_dict, amp):
    """fairseq's other wrappers ask the optimizer inside them for its state; that of ``--amp`` asks torch's, past ours.

    They keep their loss scale in it, too, which that of ``--amp`` would begin anew.
    """
    return amp.fp32_optimizer.state_dict() | {_SCALER: amp.scaler.state_dict()}


def load_inside_amp(load_state_dict, amp, state_dict, optimizer_overrides=None):
    """Counterpart of ``state_inside_amp``."""
    inner = amp.fp32_optimizer
    if state_dict.get(_SCALER):  # not in fairseq's own files, and empty where there is no GPU
        amp.scaler.load_state_dict(state_dict[_SCALER])
    state_dict = {key: value for key, value in state_dict.items() if key != _SCALER}
    # Files from before this forwarding do not say by which schedule they were trained.
    if isinstance(inner, FreezeSkip):
        state_dict = {PREFIX: inner.asked()} | state_dict
    inner.load_state_dict(state_dict, optimizer_overrides)


def make_schedule(trainer, cfg, task, model) -> None:
    """Build the freeze schedule of a training. Call it before fairseq wraps the model and changes its parameters' names."""
    check_flags(cfg)
    schedule = trainer.freeze_schedule = schedule_of(cfg.optimizer, model, cfg.common.seed)
    trainer.freeze_auto = FreezeAuto(schedule) if schedule and schedule.parts else None
    if trainer.freeze_auto:
        check_model(task, model)
    trainer.scheduled = (
        {n: p for n, p in model.named_parameters() if p.requires_grad} if trainer.freeze_schedule else {}
    )
    if trainer.freeze_schedule:
        logger.info("what the optimizer freezes:\n%s", trainer.freeze_schedule)
        spare_frozen(model)


def planned(model, args) -> str:
    """What a training with these flags would freeze and when, for a model built without data; nothing without such flags.

    Raises:
        InputError: it could not start with them.
    """
    cfg = convert_namespace_to_omegaconf(args)
    check_flags(cfg)
    schedule = schedule_of(args, model, args.seed)
    return f"what the optimizer freezes:\n{schedule}" if schedule else ""


def thaw_scheduled(trainer) -> None:
    """Make every parameter with a schedule trainable before fairseq builds the optimizer, which takes only trainable parameters.

    fairseq builds the optimizer again when it loads a checkpoint.
    """
    for parameter in trainer.scheduled.values():
        parameter.requires_grad_(True)


def bind_optimizer(trainer) -> None:
    """Give the optimizer the names of its parameters, and freeze what the schedule freezes at this update."""
    if trainer.freeze_schedule:
        moved = dict(trainer.get_model().named_parameters())
        trainer.scheduled = {name: moved[name] for name in trainer.scheduled}
        _inner(trainer._optimizer).bind(trainer.freeze_schedule, trainer.scheduled, trainer.freeze_auto)
        _inner(trainer._optimizer).go_to(trainer.get_num_updates())


def follow_update(trainer, num_updates: int) -> None:
    """Apply the freeze schedule of an update, after ``--freeze-auto`` has measured the layers."""
    if trainer.freeze_schedule:
        if trainer.freeze_auto:
            trainer.freeze_auto.look(trainer, num_updates)
        _inner(trainer.optimizer).go_to(num_updates)


def _inner(optimizer):
    """The optimizer inside those that fairseq puts around it for half precision."""
    while not isinstance(optimizer, FreezeSkip):
        optimizer = next(
            getattr(optimizer, name)
            for name in ("fp32_optimizer", "wrapped_optimizer", "_optimizer")
            if hasattr(optimizer, name)
        )
    return optimizer

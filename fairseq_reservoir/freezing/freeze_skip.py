"""``--optimizer freeze_skip`` and ``freeze_skip_<name>``: optimizer wrapper that freezes and unfreezes parameters on a schedule.

The optimizer never gets the parameters that ``--freeze`` or a layer plan freezes. After the model is built, only this optimizer
freezes or unfreezes parameters.
"""

from collections.abc import Iterable
from dataclasses import make_dataclass

import torch
from fairseq.optim import OPTIMIZER_DATACLASS_REGISTRY, OPTIMIZER_REGISTRY, register_optimizer

from ..errors import InputError, flag_of
from ..options.for_fairseq.parser import add_flags
from ..options.freeze_skip_options import FreezeSkipOptions
from ..options.reading import read
from .description import refuse_change
from .freeze_schedule import FreezeSchedule
from .freeze_skip_flags import FLAGS, given_flags

PREFIX = "freeze_skip"


class FreezeSkip:
    """Mix-in for an optimizer of fairseq. It must be the first base class, before the optimizer's class.

    The gradient of a frozen parameter is neither computed nor reduced, because ``requires_grad`` is False. Its ``grad`` is None, so every
    optimizer of fairseq skips the parameter and its weight decay. A frozen parameter has no optimizer state.
    """

    params: Iterable[torch.nn.Parameter]  # ``params`` and ``optimizer`` are attributes of fairseq's optimizer
    optimizer: torch.optim.Optimizer

    schedule: FreezeSchedule | None = None  # None until ``bind`` is called
    idle: frozenset[str] = frozenset()  # the frozen and the skipped parameters of the current update
    update: int | None

    def step(self, *args, **kwargs):
        for name in self.idle:
            # fairseq sets the gradients of fp32 copies to 0, but weight decay would still change copies with such a gradient.
            self.copies[name].grad = None
        self._rescale_idle_momentum()
        return super().step(*args, **kwargs)

    def _rescale_idle_momentum(self):
        """Rescale the momentum of skipped parameters, as nag requires.

        nag stores momentum in units of the last learning rate, ``lr_old``. It multiplies the momentum of updated parameters by lr / lr_old,
        but not the momentum of skipped parameters.
        """
        idle = {id(self.copies[name]) for name in self.idle}
        for group in self.optimizer.param_groups if idle else ():
            if not group.get("lr_old"):
                continue
            for parameter in group["params"]:
                momentum = (
                    self.optimizer.state.get(parameter, {}).get("momentum_buffer") if id(parameter) in idle else None
                )
                if momentum is not None:
                    momentum.mul_(group["lr"] / group["lr_old"])

    def bind(self, schedule: FreezeSchedule, parameters: dict[str, torch.nn.Parameter]) -> None:
        """Set the schedule and the names of the parameters.

        Args:
            schedule: the schedule of the run.
            parameters: the model's trained parameters by name. The optimizer has these parameters, or fp32 copies of them, in the same
                order.
        """
        own = list(self.params)
        self.schedule, self.parameters, self.update = schedule, parameters, None
        self.copies = dict(zip(parameters, own, strict=False))
        self.eager = bool(self.optimizer.state)

    def apply_schedule(self, update: int) -> None:
        """Freeze and unfreeze parameters for an update. Updates are numbered from 0."""
        if self.schedule is None or update == self.update:
            return
        self.update = update
        frozen = self.schedule.frozen(update)
        self.idle = frozen | self.schedule.skipped(update)
        for name, parameter in self.parameters.items():
            parameter.requires_grad_(name not in self.idle)
            if name in self.idle:
                parameter.grad = None
            if name in frozen:
                self.optimizer.state.pop(self.copies[name], None)
            elif self.eager and not self.optimizer.state.get(self.copies[name]):
                self.optimizer.state[self.copies[name]] = self._state_at_start(self.copies[name])

    def _state_at_start(self, parameter):
        """Return the initial state of a parameter, for optimizers that create all state in the constructor, such as Adagrad."""
        return type(self.optimizer)([parameter], **self.optimizer.defaults).state[parameter]

    def state_dict(self):
        return super().state_dict() | {PREFIX: self.given_flags()}

    def load_state_dict(self, state_dict, optimizer_overrides=None):
        """Load the state of a checkpoint with the same schedule. The checkpoint has no state for frozen parameters.

        Raises:
            InputError: the checkpoint was trained with another schedule, or with another seed of ``--freeze-rotate``.
        """
        stored, own = state_dict.get(PREFIX, {}), self.given_flags()
        refuse_removed_flag(stored)
        for flag in (*FLAGS, "seed"):
            if own.get(flag) != stored.get(flag):
                refuse_change(flag_of(flag), own.get(flag), stored.get(flag), can_reset=True)
        super().load_state_dict({key: value for key, value in state_dict.items() if key != PREFIX}, optimizer_overrides)

    def given_flags(self):
        """Return the given flags of the schedule. With ``--freeze-rotate``, also return the seed."""
        given = given_flags(read(FreezeSkipOptions, getattr(self, "cfg", None) or self.args))
        if given.get("freeze_rotate") and self.schedule:
            given["seed"] = self.schedule.seed
        return given


def refuse_removed_flag(stored: dict) -> None:
    """Refuse a checkpoint that was trained with ``--freeze-auto``, a flag of earlier versions of this package."""
    if stored.get("freeze_auto"):
        raise InputError(
            "--freeze-auto: the checkpoint was trained with this flag, which no longer exists; use --freeze-schedule to freeze the layers "
            "that the log of that training lists as frozen, and add --reset-optimizer"
        )


def register_all() -> None:
    """Register ``freeze_skip``, and ``freeze_skip_<name>`` for each optimizer of fairseq."""
    for name, inner in list(OPTIMIZER_REGISTRY.items()):
        if name == "composite" or name.startswith(PREFIX):
            continue  # composite has an optimizer for each group of parameters, and only a configuration can set them
        _register(f"{PREFIX}_{name}", inner, OPTIMIZER_DATACLASS_REGISTRY.get(name))
    _register(PREFIX, OPTIMIZER_REGISTRY["adam"], OPTIMIZER_DATACLASS_REGISTRY["adam"])


def _register(name, inner, options):
    if name in OPTIMIZER_REGISTRY:
        return
    title = "".join(part.title() for part in name.split("_"))
    about = {"__module__": __name__, "__doc__": f"fairseq's ``{inner.__name__}`` with the mix-in ``FreezeSkip``."}
    if options is None:
        about["add_args"] = staticmethod(_flags_after(inner.add_args))
    else:
        options = make_dataclass(
            f"{title}Config", [], bases=(FreezeSkipOptions, options), namespace={"__module__": __name__}
        )
    register_optimizer(name, dataclass=options)(type(title, (FreezeSkip, inner), about))


def _flags_after(add_args):
    def add(parser):
        add_args(parser)
        add_flags(parser, FreezeSkipOptions)

    return add

"""``--optimizer freeze_skip`` and ``freeze_skip_<name>``: an optimizer of fairseq that leaves parameters alone while a run goes on.

What ``--freeze`` or a layer plan froze never reaches an optimizer, with or without this one. This one freezes and thaws at
updates, which those cannot. It alone may change what is trained once a model is built.
"""

from collections.abc import Iterable
from dataclasses import make_dataclass

import torch
from fairseq.optim import OPTIMIZER_DATACLASS_REGISTRY, OPTIMIZER_REGISTRY, register_optimizer

from ..errors import flag_of
from ..options.for_fairseq.parser import add_flags
from ..options.freeze_skip_options import FreezeSkipOptions
from ..options.reading import read
from .description import refuse_change
from .freeze_auto import FreezeAuto
from .freeze_schedule import FreezeSchedule
from .freeze_skip_flags import FLAGS, given_flags

PREFIX = "freeze_skip"
# What --freeze-auto has learned, beside the flags in a checkpoint.
LEARNED = "learned"


class FreezeSkip:
    """To be mixed into an optimizer of fairseq, before it in the bases.

    A frozen parameter has ``requires_grad`` off, so that its gradient is neither computed nor reduced, no gradient where the
    optimizer looks for one, which makes every optimizer of fairseq pass it by, decay included, and no optimizer state.
    """

    params: Iterable[torch.nn.Parameter]  # of fairseq's optimizer, as is the next
    optimizer: torch.optim.Optimizer

    # Until a trainer says what the parameters are called.
    schedule: FreezeSchedule | None = None
    auto: FreezeAuto | None = None
    idle: frozenset[str] = frozenset()
    update: int | None

    def step(self, *args, **kwargs):
        for name in self.idle:
            # fairseq keeps gradients of fp32 copies at 0 instead, which weight decay would move.
            self.copies[name].grad = None
        self._rescale_idle_momentum()
        return super().step(*args, **kwargs)

    def _rescale_idle_momentum(self):
        """nag's momentum is in units of the rate of the last step, which it keeps for all parameters together: ``lr_old``.

        It corrects the momentum of what it updates by rate / lr_old, and so would lose the changes that the others sit out.
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

    def bind(
        self, schedule: FreezeSchedule, parameters: dict[str, torch.nn.Parameter], auto: FreezeAuto | None = None
    ) -> None:
        """Tells which parameter is which.

        Args:
            schedule: of the run.
            parameters: the model's trained parameters by name, in the order in which this optimizer got them, or fp32 copies.
            auto: what adds to the schedule.
        """
        own, self.auto = list(self.params), auto
        self.schedule, self.parameters, self.update = schedule, parameters, None
        self.copies = dict(zip(parameters, own, strict=False))
        self.eager = bool(self.optimizer.state)

    def go_to(self, update: int) -> None:
        """Freezes and thaws for an update, the number of those before it."""
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
        """What an optimizer that makes all state when it is built, as Adagrad does, would make for a parameter alone."""
        return type(self.optimizer)([parameter], **self.optimizer.defaults).state[parameter]

    def state_dict(self):
        learned = {LEARNED: self.auto.state_dict()} if self.auto else {}
        return super().state_dict() | {PREFIX: self.asked() | learned}

    def load_state_dict(self, state_dict, optimizer_overrides=None):
        """A checkpoint's state is that of its own schedule: what it froze has none.

        Raises:
            InputError: the checkpoint was trained with another schedule, or with another seed for its rotation.
        """
        stored, own = state_dict.get(PREFIX, {}), self.asked()
        for flag in (*FLAGS, "seed"):
            given, trained = own.get(flag), stored.get(flag)
            if given is True or trained is True:  # a switch
                given, trained = given and "given", trained and "it"
                if given and trained:
                    continue
            if given != trained:
                refuse_change(flag_of(flag), given, trained, can_reset=True)
        if self.auto and LEARNED in stored:
            self.auto.load_state_dict(stored[LEARNED])
        super().load_state_dict({key: value for key, value in state_dict.items() if key != PREFIX}, optimizer_overrides)

    def asked(self):
        """The flags that were given, and the seed if it matters."""
        given = given_flags(read(FreezeSkipOptions, getattr(self, "cfg", None) or self.args))
        if given.get("freeze_rotate") and self.schedule:
            given["seed"] = self.schedule.seed
        return given


def register_all() -> None:
    """Registers ``freeze_skip`` and ``freeze_skip_<name>`` for the optimizers that fairseq has."""
    for name, inner in list(OPTIMIZER_REGISTRY.items()):
        if name == "composite" or name.startswith(PREFIX):
            continue  # composite names other optimizers for groups of parameters, by configuration only
        _register(f"{PREFIX}_{name}", inner, OPTIMIZER_DATACLASS_REGISTRY.get(name))
    _register(PREFIX, OPTIMIZER_REGISTRY["adam"], OPTIMIZER_DATACLASS_REGISTRY["adam"])


def _register(name, inner, options):
    if name in OPTIMIZER_REGISTRY:
        return
    title = "".join(part.title() for part in name.split("_"))
    about = {"__module__": __name__, "__doc__": f"fairseq's ``{inner.__name__}`` behind ``FreezeSkip``."}
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

"""``--optimizer freeze_skip`` and ``freeze_skip_<name>``: an optimizer of fairseq that leaves parameters alone while a run goes on.

What ``--freeze`` or a layer plan froze never reaches an optimizer, with or without this one. This one freezes and thaws at
updates, which those cannot. It alone may change what is trained once a model is built.
"""

import logging
from argparse import Namespace
from collections.abc import Iterable
from dataclasses import make_dataclass

import torch
from fairseq.dataclass.utils import convert_namespace_to_omegaconf, gen_parser_from_dataclass
from fairseq.optim import OPTIMIZER_DATACLASS_REGISTRY, OPTIMIZER_REGISTRY, register_optimizer

from ..errors import InputError, flag_of
from ..freezing.description import refuse_change
from ..freezing.table_of_model import tied_names
from ..layers.quant_noise import spare_frozen
from ..options.flags import check_texts
from ..options.freeze_skip_options import FreezeSkipOptions
from ..plan import freeze_spec
from .freeze_auto import FreezeAuto, check_model
from .freeze_schedule import FLAG_AUTO, FreezeSchedule, parse_periods, parse_progression, parse_rotation, parse_schedule

logger = logging.getLogger(__name__)

PREFIX = "freeze_skip"
_SCALER = "amp_scaler"
# What --freeze-auto has learned, beside the flags in a checkpoint.
LEARNED = "learned"
_OF_AUTO = ("freeze_auto_interval", "freeze_auto_threshold", "freeze_auto_keep")
_FLAGS = ("freeze_schedule", "freeze_progressive", "freeze_rotate", "freeze_update_every", "freeze_auto", *_OF_AUTO)


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
            self.copies[
                name
            ].grad = None  # fairseq keeps gradients of fp32 copies at 0 instead, which weight decay would move
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
        return super().state_dict() | {PREFIX: self._asked() | learned}

    def load_state_dict(self, state_dict, optimizer_overrides=None):
        """A checkpoint's state is that of its own schedule: what it froze has none.

        Raises:
            InputError: the checkpoint was trained with another schedule, or with another seed for its rotation.
        """
        stored, own = state_dict.get(PREFIX, {}), self._asked()
        for flag in (*_FLAGS, "seed"):
            given, trained = own.get(flag), stored.get(flag)
            if given is True or trained is True:  # a switch
                given, trained = given and "given", trained and "it"
                if given and trained:
                    continue
            if given != trained:
                refuse_change(f"--{flag.replace('_', '-')}", given, trained, can_reset=True)
        if self.auto and LEARNED in stored:
            self.auto.load_state_dict(stored[LEARNED])
        super().load_state_dict({key: value for key, value in state_dict.items() if key != PREFIX}, optimizer_overrides)

    def _asked(self):
        """The flags that were given, with the seed where it has a say."""
        options = getattr(self, "cfg", None) or self.args
        given = {flag: getattr(options, flag, None) for flag in _FLAGS}
        if given["freeze_rotate"] and self.schedule:
            given["seed"] = self.schedule.seed
        return {flag: value for flag, value in given.items() if value is not None and value is not False}


def schedule_of(options, model: torch.nn.Module, seed: int) -> FreezeSchedule | None:
    """The schedule that an optimizer's options describe for a model, or None if they ask for nothing."""
    given = {flag.removeprefix("freeze_"): getattr(options, flag, None) for flag in _FLAGS}
    if not any(given.values()):
        return None
    for flag, layers in getattr(model, "keeps", {}).items():
        _refuse_numbers(options, f"{flag} {layers}")
    parameters = dict(model.named_parameters())
    names = {trained: [n for n, p in parameters.items() if p.requires_grad == trained] for trained in (True, False)}
    aliases = {
        name: owner for name, (owner, _) in tied_names(model, parameters).items() if parameters[owner].requires_grad
    }
    return FreezeSchedule(names[True], **given, seed=seed, untrained=names[False], aliases=aliases)


def _refuse_numbers(options, pruning):
    """Layers that are left have other numbers than --freeze knows them by."""
    specs = {
        "freeze_schedule": [change.spec for change in parse_schedule(options.freeze_schedule)],
        "freeze_update_every": [spec for spec, _ in parse_periods(options.freeze_update_every)],
    }
    for name, said in specs.items():
        if any(item.layers is not None for spec in said for item in freeze_spec.parse(spec)):
            raise InputError(
                f"{flag_of(name)} {getattr(options, name)!r}: names layers by number, which {pruning} changes; "
                "name components, or leave one of them out"
            )


def check_flags(cfg) -> None:
    """Refuses what cannot be parsed and what fairseq's engine would do wrongly.

    Called before data is read, and again by the trainer, when torchrun has told the number of processes. What depends on the
    model's names is refused by ``FreezeSchedule``, once the model is built.

    fairseq's flat fp16 buffer packs the gradients of what is trained now beside the weights of what was trained at the start.
    Its c10d and FSDP engines fix at the start whose gradients they wait for. BMUF's block momentum goes on moving what is frozen.

    Raises:
        InputError: one line with the flag to change.
    """
    options = cfg.optimizer
    check_texts(options, FreezeSkipOptions)
    _check_auto(options, cfg.checkpoint)
    given = [flag for flag in _FLAGS if getattr(options, flag, None)]
    if not given:
        return
    parse_schedule(options.freeze_schedule)
    parse_rotation(options.freeze_rotate)
    parse_periods(options.freeze_update_every)
    if options.freeze_progressive:
        parse_progression(options.freeze_progressive)
    flag = flag_of(given[0])
    common, engine = cfg.common, cfg.distributed_training
    if common.fp16 and not (common.fp16_no_flatten_grads or common.memory_efficient_fp16):
        raise InputError(
            f"{flag} with --fp16: fairseq's flat buffer would mix up the gradients; add --fp16-no-flatten-grads"
        )
    if common.fp16 and cfg.optimization.debug_param_names:
        raise InputError(
            f"{flag} with --fp16 --debug-param-names: fairseq looks for gradients of what is frozen; leave one of them out"
        )
    if common.quantization_config_path:
        raise InputError(
            f"{flag} with --quantization-config-path {common.quantization_config_path}: code books would take the place of what is"
            " to be frozen; leave one of them out"
        )
    wraps = engine.distributed_world_size > 1 or engine.ddp_backend == "fully_sharded"
    if wraps and engine.ddp_backend not in ("legacy_ddp", "no_c10d"):
        raise InputError(
            f"{flag} with --ddp-backend {engine.ddp_backend}: it fixes at the start whose gradients are summed; "
            "add --ddp-backend legacy_ddp"
        )
    if engine.zero_sharding != "none":
        raise InputError(
            f"{flag} with --zero-sharding {engine.zero_sharding}: its shards are fixed at the start; leave one of them out"
        )
    if cfg.optimization.use_bmuf:
        raise InputError(f"{flag} with --use-bmuf: its momentum would move what is frozen; leave one of them out")


def _check_auto(options, checkpoint):
    if not getattr(options, "freeze_auto", False):
        for name in _OF_AUTO:
            if getattr(options, name, None) is not None:
                raise InputError(
                    f"{flag_of(name)} {getattr(options, name)}: is for {FLAG_AUTO}; add that, or leave this out"
                )
        return
    for name in ("freeze_auto_interval", "freeze_auto_keep"):
        value = getattr(options, name)
        if value is not None and value < 1:
            raise InputError(f"{flag_of(name)} {value}: must be at least 1")
    share = options.freeze_auto_threshold
    if share is not None and not 0 < share < 1:
        raise InputError(f"--freeze-auto-threshold {share}: must be between 0 and 1")
    for name, why in (
        ("freeze_progressive", "both freeze layers from the bottom up"),
        ("freeze_rotate", "it trains again what has learned"),
        ("freeze_update_every", "a layer that is updated less often seems to have learned"),
    ):
        if getattr(options, name):
            raise InputError(f"{FLAG_AUTO} with {flag_of(name)} {getattr(options, name)}: {why}; leave one of them out")
    if checkpoint.no_save_optimizer_state:
        raise InputError(
            f"{FLAG_AUTO} with --no-save-optimizer-state: what is frozen is stored with that state; leave one of them out"
        )


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
        gen_parser_from_dataclass(parser, FreezeSkipOptions())

    return add


def state_inside_amp(state_dict, amp):
    """fairseq's other wrappers ask the optimizer inside them for its state; that of ``--amp`` asks torch's, past ours.

    They keep their loss scale in it, too, which that of ``--amp`` would begin anew.
    """
    return amp.fp32_optimizer.state_dict() | {_SCALER: amp.scaler.state_dict()}


def load_inside_amp(load_state_dict, amp, state_dict, optimizer_overrides=None):
    inner = amp.fp32_optimizer
    if state_dict.get(_SCALER):  # not in fairseq's own files, and empty where there is no GPU
        amp.scaler.load_state_dict(state_dict[_SCALER])
    state_dict = {key: value for key, value in state_dict.items() if key != _SCALER}
    if isinstance(
        inner, FreezeSkip
    ):  # files from before this forwarding do not say by which schedule they were trained
        state_dict = {PREFIX: inner._asked()} | state_dict
    inner.load_state_dict(state_dict, optimizer_overrides)


def make_schedule(init, trainer, cfg, task, model, *args, **kwargs):
    """Makes the schedule of a run while the names of the model's parameters are still its own."""
    if isinstance(cfg, Namespace):
        cfg = convert_namespace_to_omegaconf(cfg)
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
    init(trainer, cfg, task, model, *args, **kwargs)


def planned(model, args) -> str:
    """What a training with these flags would freeze and when, for a model built without data; nothing without such flags.

    Raises:
        InputError: it could not start with them.
    """
    cfg = convert_namespace_to_omegaconf(args)
    check_flags(cfg)
    schedule = schedule_of(args, model, args.seed)
    return f"what the optimizer freezes:\n{schedule}" if schedule else ""


def bind(build, trainer):
    """Tells the optimizer the names of its parameters."""
    # fairseq gives the optimizer what is trained at this moment, and builds it again when it loads a checkpoint.
    for parameter in trainer.scheduled.values():
        parameter.requires_grad_(True)
    build(trainer)
    if trainer.freeze_schedule:
        moved = dict(trainer.get_model().named_parameters())
        trainer.scheduled = {name: moved[name] for name in trainer.scheduled}
        _inner(trainer._optimizer).bind(trainer.freeze_schedule, trainer.scheduled, trainer.freeze_auto)
        _inner(trainer._optimizer).go_to(trainer.get_num_updates())


def go_to(set_num_updates, trainer, num_updates):
    """Tells the optimizer the number of the update, once it is known what has learned by then."""
    set_num_updates(trainer, num_updates)
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

"""The flags of ``--optimizer freeze_skip``: checks before data is read, and the schedule for a model."""

from dataclasses import asdict, fields

import torch

from ..errors import InputError, flag_of
from ..masks.masked_weight import refuse_moving_masks
from ..options.flags import check, check_texts, given as given_option
from ..options.freeze_skip_options import FreezeSkipOptions, resolve
from ..options.reading import read
from ..plan import freeze_spec
from .freeze_schedule import FreezeSchedule
from .table_of_model import tied_names

FLAGS = tuple(flag.name for flag in fields(FreezeSkipOptions) if flag.name != "_name")


def schedule_of(options, model: torch.nn.Module, seed: int) -> FreezeSchedule | None:
    """The freeze schedule that an optimizer's options describe for a model; None if no flag of a schedule is given."""
    options = read(FreezeSkipOptions, options)
    given = given_flags(options)
    if not given:
        return None
    for flag, layers in getattr(model, "keeps", {}).items():
        _refuse_numbers(options, f"{flag} {layers}")
    parameters = dict(model.named_parameters())
    names = {trained: [n for n, p in parameters.items() if p.requires_grad == trained] for trained in (True, False)}
    aliases = {
        name: owner for name, (owner, _) in tied_names(model, parameters).items() if parameters[owner].requires_grad
    }
    schedule = FreezeSchedule(names[True], options, seed=seed, untrained=names[False], aliases=aliases)
    said = given_option(*next(iter(given.items())))
    for frozen in (schedule.frozen(0),) if schedule.rotate else schedule.frozen_in_phases():
        refuse_moving_masks(model, said, [parameters[name] for name in (*frozen, *names[False])])
    return schedule


def given_flags(options: FreezeSkipOptions) -> dict:
    """The flags that were given, with their values."""
    return {name: value for name, value in asdict(options).items() if value is not None and value is not False}


def _refuse_numbers(options, pruning):
    """Refuse numbers of layers in a pruned model, because they differ from the numbers that --freeze uses."""
    settings = resolve(options)
    for flag, text, specs in (
        ("--freeze-schedule", options.freeze_schedule, [change.spec for change in settings.schedule]),
        ("--freeze-update-every", options.freeze_update_every, [spec for spec, _ in settings.update_every]),
    ):
        if any(item.layers is not None for spec in specs for item in freeze_spec.parse(spec, flag)):
            raise InputError(
                f"{flag} {text!r}: names layers by number, but {pruning} changes the numbers; "
                "name components, or remove one of these flags"
            )


def check_flags(cfg) -> None:
    """Refuse flags that cannot be parsed, and combinations with flags of fairseq that would give wrong results.

    This function is called before data is read, and again by the trainer, because torchrun sets the number of ranks in between.
    ``FreezeSchedule`` compares the flags with the names of the model's parameters.

    fairseq's flat fp16 buffer contains the weights that were trained at the start, but only the gradients of the parameters that are
    trained now. fairseq's c10d and FSDP engines wait for the gradients of all parameters that were trained at the start. BMUF's block
    momentum would change frozen parameters.

    Raises:
        InputError: one line with the flag to change.
    """
    options = read(FreezeSkipOptions, cfg.optimizer)
    check_texts(options, FreezeSkipOptions)
    check(options, FreezeSkipOptions)
    if not (given := given_flags(options)):
        return
    resolve(options)
    flag = flag_of(next(iter(given)))
    common, engine = cfg.common, cfg.distributed_training
    if common.fp16 and not (common.fp16_no_flatten_grads or common.memory_efficient_fp16):
        raise InputError(
            f"{flag} with --fp16: fairseq's flat buffer would mix up the gradients; add --fp16-no-flatten-grads"
        )
    if common.fp16 and cfg.optimization.debug_param_names:
        raise InputError(
            f"{flag} with --fp16 --debug-param-names: fairseq reads gradients of frozen parameters; remove one of these flags"
        )
    if common.quantization_config_path:
        raise InputError(
            f"{flag} with --quantization-config-path {common.quantization_config_path}: code books would replace frozen"
            " tensors; remove one of these flags"
        )
    wraps = engine.distributed_world_size > 1 or engine.ddp_backend == "fully_sharded"
    if wraps and engine.ddp_backend not in ("legacy_ddp", "no_c10d"):
        raise InputError(
            f"{flag} with --ddp-backend {engine.ddp_backend}: this backend fixes at the start which gradients it sums; "
            "add --ddp-backend legacy_ddp"
        )
    if engine.zero_sharding != "none":
        raise InputError(
            f"{flag} with --zero-sharding {engine.zero_sharding}: the shards are fixed at the start; remove one of these flags"
        )
    if cfg.optimization.use_bmuf:
        raise InputError(
            f"{flag} with --use-bmuf: its momentum would change frozen parameters; remove one of these flags"
        )

"""Check the flags of ``--optimizer freeze_skip`` before data is read, and make the schedule of a model from them."""

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
    """Make the freeze schedule of a model from the options of its optimizer. Return None if no schedule is given."""
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
    flag = given_option(*next(iter(given.items())))
    for frozen in (schedule.frozen(0),) if schedule.rotate else schedule.frozen_in_phases():
        refuse_moving_masks(model, flag, [parameters[name] for name in (*frozen, *names[False])])
    return schedule


def given_flags(options: FreezeSkipOptions) -> dict:
    """Return the given flags with their values."""
    return {name: value for name, value in asdict(options).items() if value is not None}


def _refuse_numbers(options, pruning):
    """Refuse layer numbers in the flags of a pruned model. Pruning renumbers the layers, but ``--freeze`` uses the original numbers."""
    settings = resolve(options)
    for flag, text, specs in (
        ("--freeze-schedule", options.freeze_schedule, [change.spec for change in settings.schedule]),
        ("--freeze-update-every", options.freeze_update_every, [spec for spec, _ in settings.update_every]),
    ):
        if any(item.layers is not None for spec in specs for item in freeze_spec.parse(spec, flag)):
            raise InputError(
                f"{flag} {text!r}: contains layer numbers, which {pruning} changes; "
                "give components without layer numbers, or remove one of these flags"
            )


def check_flags(cfg) -> None:
    """Refuse invalid flags of ``freeze_skip``, and combinations with fairseq's flags that would give wrong results.

    This check runs before data is read. It runs again in the trainer, because fairseq reads torchrun's number of ranks
    only after the first check. ``FreezeSchedule`` later compares the flags with the names of the model's parameters.

    Reason with ``--fp16``: fairseq's flat buffer contains all weights that are trained at the start, but only the gradients of the weights
    that are trained now. Reason with fairseq's c10d and FSDP engines: they wait for the gradients of all parameters that are trained at the
    start.
    """
    options = read(FreezeSkipOptions, cfg.optimizer)
    check_texts(options, FreezeSkipOptions)
    check(options, FreezeSkipOptions)
    if not (given := given_flags(options)):
        return
    resolve(options)
    common, engine = cfg.common, cfg.distributed_training
    code_books, backend, sharding = common.quantization_config_path, engine.ddp_backend, engine.zero_sharding
    flat_fp16 = common.fp16 and not (common.fp16_no_flatten_grads or common.memory_efficient_fp16)
    wraps = engine.distributed_world_size > 1 or backend == "fully_sharded"
    remove = "remove one of these flags"
    for refused, other, reason in (
        (flat_fp16, "--fp16", "fairseq's flat buffer would mix up the gradients; add --fp16-no-flatten-grads"),
        (
            common.fp16 and cfg.optimization.debug_param_names,
            "--fp16 --debug-param-names",
            f"fairseq reads gradients of frozen parameters; {remove}",
        ),
        (
            code_books,
            f"--quantization-config-path {code_books}",
            f"code books would replace frozen tensors; {remove}",
        ),
        (
            wraps and backend not in ("legacy_ddp", "no_c10d"),
            f"--ddp-backend {backend}",
            "this backend always sums the gradients of the parameters that are trained at the start; add --ddp-backend legacy_ddp",
        ),
        (sharding != "none", f"--zero-sharding {sharding}", f"the shards are fixed at the start; {remove}"),
        (cfg.optimization.use_bmuf, "--use-bmuf", f"its block momentum would change frozen parameters; {remove}"),
    ):
        if refused:
            raise InputError(f"{flag_of(next(iter(given)))} with {other}: {reason}")

"""Resolve the layer plans of a model's options to ``Plans`` once, and check them.

On a command line, the architecture function resolves and checks the plans before any data is read. It writes the expanded plans and their
depths into the options. fairseq then converts the options to text and copies the options several times, so the options cannot contain a
``Plans`` object. Instead, ``resolve`` caches the ``Plans`` with the completed options as the key, and the model is built from the cached
object. For options from hydra, from a checkpoint or from ``--model-overrides``, the plans are resolved when the model is built.
"""

from argparse import Namespace
from dataclasses import dataclass, replace
from typing import Any

from ..errors import InputError, flag_of
from ..plan import kinds, layer_plan
from ..plan.layer_plan import Plans, slots
from .fairseq_flags import ModelFlags
from .flags import given
from .layer_options import FrozenLayerOptions, check_layer_options
from .number_rules import collect, refuse
from .reading import read

# fairseq's flags of NormFormer, which add LayerNorms and trained factors to the layers of language models.
_NORMFORMER = ("scale_attn", "scale_fc", "scale_heads", "scale_resids")
# fairseq's flags that only fairseq's own layers support.
_FLAGS_OF_FAIRSEQS_LAYER = ("quant_noise_pq", *_NORMFORMER)
# Stack -> the option with the number of its reservoirs.
_COUNTS = {"encoder": "reservoir_count", "decoder": "reservoir_decoder_count"}
# Defaults of the options that have an effect only together with a count.
_OF_COUNTS = {name: getattr(FrozenLayerOptions, name) for name in ("reservoir_type", "reservoir_placement")}


@dataclass(frozen=True)
class PlanFlags:
    """The flags that determine the layers of a model. A flag is None if it is not given or the model does not have it."""

    reservoir_encoder: str | None = None
    reservoir_decoder: str | None = None
    reservoir_count: int | None = None
    reservoir_decoder_count: int | None = None
    encoder_layers: int | None = None
    decoder_layers: int | None = None
    encoder_layers_to_keep: str | None = None
    decoder_layers_to_keep: str | None = None
    reservoir_type: str | None = None
    reservoir_placement: str | None = None

    def __post_init__(self) -> None:
        for name in ("encoder_layers_to_keep", "decoder_layers_to_keep"):
            value: Any = getattr(self, name)
            if isinstance(value, list):  # a value in --model-overrides may be a list
                object.__setattr__(self, name, ",".join(map(str, value)))


# Resolved plans. A key contains the completed flags and the names of the model's stacks.
_resolved: dict[tuple[PlanFlags, tuple[str, ...]], Plans] = {}


def plans_of(options: Namespace, depths: dict[str, int]) -> Plans:
    """Return the plans of a model's complete options, after ``check``."""
    plans = resolve(options, depths)
    check(options, plans)
    return plans


def resolve(options: Any, depths: dict[str, int]) -> Plans:
    """Return the plans of a model. Write the expanded plans and their depths into ``options``, in place of the numbers of reservoirs.

    Args:
        options: the given options, before the defaults of the architecture are filled in.
        depths: default depth of each stack. It applies if neither a plan nor a depth is given.

    Raises:
        InputError: a plan is invalid, contradicts a given depth, or is given together with a number of reservoirs; a depth is below 1; the
            reservoirs do not fit into the stack; a type or placement of reservoirs is given without their number; or a layer to keep does
            not exist.
    """
    flags, stacks = read(PlanFlags, options), tuple(depths)
    if (flags, stacks) in _resolved:
        return _resolved[flags, stacks]
    plans = _resolve(flags, depths)
    completed = _completed(flags, plans)
    _resolved[completed, stacks] = plans
    for name, value in vars(completed).items():
        if value != vars(flags)[name]:
            setattr(options, name, value)
    return plans


def _resolve(flags: PlanFlags, depths: dict[str, int]) -> Plans:
    values, found = vars(flags), []
    if all(values[_COUNTS[stack]] is None for stack in depths):
        for name, default in _OF_COUNTS.items():
            if values[name] not in (None, default):
                count = flag_of(_COUNTS[next(iter(depths))])
                found.append(f"{flag_of(name)} {values[name]}: has no effect without {count}")
    letters, built = {}, {}
    for stack, depth in depths.items():
        with collect(found):
            letters[stack] = plan = _letters(stack, depth, values)
            built[stack] = slots(plan, values[f"{stack}_layers_to_keep"], f"--{stack}-layers-to-keep")
    refuse(found)
    return Plans(built, {stack: slots(plan) for stack, plan in letters.items()})


def _letters(stack: str, depth: int, values: dict[str, Any]) -> str:
    """Return the plan of a stack, one letter per layer, from the values of ``PlanFlags``."""
    flag, plan, layers = f"--reservoir-{stack}", values[f"reservoir_{stack}"], values[f"{stack}_layers"]
    count_flag, count = flag_of(_COUNTS[stack]), values[_COUNTS[stack]]
    if plan is not None and count is not None:
        raise InputError(f"{flag} {plan!r} and {count_flag} {count}: give the plan or the count, not both")
    if plan is not None:
        plan = layer_plan.expand(plan, flag, stack)
        if layers not in (None, len(plan)):
            raise InputError(
                f"--{stack}-layers {layers}: {flag} {plan} has {len(plan)} layers; remove --{stack}-layers, because the plan sets the depth"
            )
        return plan
    if layers is not None and not 1 <= layers <= layer_plan.MOST_LAYERS:
        raise InputError(f"--{stack}-layers {layers}: must be at least 1 and at most {layer_plan.MOST_LAYERS}")
    # Without any count, _resolve refuses type and placement.
    reservoir_type, placement = (
        default if count is None or values[name] is None else values[name] for name, default in _OF_COUNTS.items()
    )
    plan = layer_plan.plan_by_count(layers or depth, count or 0, reservoir_type, placement, count_flag)
    if count is None:
        return plan
    return layer_plan.expand(plan, f"{count_flag} {count} of --reservoir-type {reservoir_type}, that is", stack)


def _completed(flags: PlanFlags, plans: Plans) -> PlanFlags:
    """Add the expanded plans and their depths to the flags. Reset the flags that the plans replace: count, type and placement."""
    found: dict[str, Any] = dict(_OF_COUNTS)
    for stack, plan in plans.unpruned.items():
        found |= {f"reservoir_{stack}": "".join(slot.letter for slot in plan), f"{stack}_layers": len(plan)}
    return replace(flags, **found, **dict.fromkeys(_COUNTS.values()))


def check(options: Namespace, plans: Plans | None) -> None:
    """Check a model's complete options and plans before anything is built. Without plans, check only the options.

    Raises:
        InputError: ``check_layer_options`` refuses the options, a layer cannot have the given width or number of heads, or no layer of the
            decoder attends to the source.
    """
    found: list[str] = []
    with collect(found):
        check_layer_options(options)
    flags = read(ModelFlags, options)
    with collect(found):
        _check_rezero(options.rezero, flags)
    if plans is not None:
        with collect(found):
            _check_attention_to_source(
                f"--reservoir-decoder {read(PlanFlags, options).reservoir_decoder}", flags, plans
            )
        with collect(found):
            _check_scalar_noise(flags, plans)
        with collect(found):
            _check_flags_of_fairseqs_layer(flags, plans)
        for stack, plan in plans.unpruned.items():
            with collect(found):
                _check_width(stack, plan, flags)
    refuse(found)


def _check_rezero(rezero, flags):
    refuse(
        [
            f"{given(name, True)}: cannot be combined with --rezero, which replaces LayerNorms by one gain per layer; remove one of these "
            "flags"
            for name in (_NORMFORMER if rezero else ())
            if vars(flags)[name]
        ]
    )


def _check_scalar_noise(flags, plans):
    noise = flags.quant_noise_scalar
    without_noise = kinds.letters_where(takes_scalar_noise=False)
    if noise and any(slot.letter in without_noise for plan in plans.unpruned.values() for slot in plan):
        raise InputError(
            f"--quant-noise-scalar {noise}: not supported in {kinds.listed(without_noise, 'or')} layers; remove the flag"
        )


def _check_width(stack, plan, flags):
    width, heads = (vars(flags)[f"{stack}_{name}"] for name in ("embed_dim", "attention_heads"))
    if width < 1 or heads < 1:
        return  # refused by check_layer_options
    for slot in plan:
        if slot.kind.even_width and width % 2:
            raise InputError(f"--{stack}-embed-dim {width}: {slot.kind.letter} layers need an even width")
    if width % heads and any(slot.kind.heads_divide for slot in plan):
        raise InputError(f"--{stack}-attention-heads {heads}: must divide --{stack}-embed-dim {width}")


def _check_flags_of_fairseqs_layer(flags, plans):
    """If the plan has trained layers that are not fairseq's own, refuse flags that only fairseq's own layers support.

    Such a flag would change only some of the trained layers, which would make a comparison of layer kinds unfair.
    """
    slots = [slot for plan in plans.unpruned.values() for slot in plan]
    letters = sorted({slot.letter for slot in slots if not (slot.kind.fairseqs or slot.frozen)})
    refuse(
        [
            f"{given(name, value)}: not supported in {kinds.listed(letters, 'or')} layers; remove the flag"
            for name in (_FLAGS_OF_FAIRSEQS_LAYER if letters else ())
            if (value := vars(flags)[name])
        ]
    )


def _check_attention_to_source(plan, flags, plans):
    decoder = plans.built.get("decoder")
    if not decoder or "encoder" not in plans.built:
        return
    if flags.cross_self_attention and not all(slot.kind.fairseqs for slot in decoder):
        raise InputError(
            f"{plan}: with --cross-self-attention, only {kinds.listed(kinds.letters_where('decoder', fairseqs=True))} layers are allowed"
        )
    if flags.no_cross_attention or any(slot.kind.sees_source for slot in decoder):
        return
    attending = kinds.listed(kinds.letters_where("decoder", sees_source=True), "or")
    if any(slot.kind.sees_source for slot in plans.unpruned["decoder"]):
        raise InputError(
            f"--decoder-layers-to-keep {flags.decoder_layers_to_keep}: no kept layer of {plan} attends to the source; keep at least one of "
            f"{attending}"
        )
    raise InputError(f"{plan}: no layer attends to the source; use at least one of {attending}")

"""Resolve the layer plans of a model's flags to ``Plans``, once, and check them.

The architecture function of a command line resolves the plans, writes them and their depths into the options, and checks them before
any data is read. fairseq converts the options to text and copies them several times before it builds the model. Therefore the options
cannot contain a ``Plans`` object. Instead, ``resolve`` stores the ``Plans`` under the values of the completed flags, and the model is
built from this object. For options from hydra or from a checkpoint, and for options changed by ``--model-overrides``, the plans are
resolved when the model is built.
"""

from argparse import Namespace
from dataclasses import dataclass, replace
from typing import Any

from ..errors import InputError, flag_of
from ..plan import kinds, layer_plan
from ..plan.layer_plan import Plans, layers_kept, slots
from .fairseq_flags import ModelFlags
from .flags import given
from .layer_options import FrozenLayerOptions, check_layer_options
from .reading import read

# Flags that add trained factors to the layers of fairseq's language models.
_GAINS = ("scale_attn", "scale_fc", "scale_heads", "scale_resids")
_TYPE, _PLACEMENT = FrozenLayerOptions.reservoir_type, FrozenLayerOptions.reservoir_placement


@dataclass(frozen=True)
class PlanFlags:
    """The flags that decide the layers of a model; None for a flag that is not given or that the model does not have."""

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

    def stack(self, name: str) -> "_Stack":
        """The flags of ``encoder`` or ``decoder``."""
        if name == "encoder":
            return _Stack(
                name, self.reservoir_encoder, "--reservoir-count", self.reservoir_count, self.encoder_layers,
                self.encoder_layers_to_keep,
            )  # fmt: skip
        return _Stack(
            name, self.reservoir_decoder, "--reservoir-decoder-count", self.reservoir_decoder_count, self.decoder_layers,
            self.decoder_layers_to_keep,
        )  # fmt: skip


@dataclass(frozen=True)
class _Stack:
    """The flags of one stack."""

    name: str
    plan: str | None
    count_flag: str
    count: int | None
    layers: int | None
    to_keep: str | None


# Resolved plans. A key has the completed flags and the names of the model's stacks.
_resolved: dict[tuple[PlanFlags, tuple[str, ...]], Plans] = {}


def plans_of(options: Namespace, depths: dict[str, int]) -> Plans:
    """The checked plans of a model's complete options; see ``resolve`` and ``check``."""
    plans = resolve(options, depths)
    check(options, plans)
    return plans


def resolve(options: Any, depths: dict[str, int]) -> Plans:
    """Return the plans of a model. Write the expanded plans and their depths into its options, and remove counts from them.

    Args:
        options: the options that are set so far, before the defaults of the architecture are filled in.
        depths: the architecture's default depth of each stack, for a stack with neither a plan nor an explicit depth.

    Raises:
        InputError: a plan is invalid, differs from an explicit depth, or is given together with a count; a depth is below 1; a
            count does not fit; a type or placement is given without a count; or layers to keep do not exist.
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
    stacks = {name: flags.stack(name) for name in depths}
    counts = {stack.count_flag: stack.count for stack in stacks.values()}
    for name, value, default in (
        ("reservoir_type", flags.reservoir_type, _TYPE),
        ("reservoir_placement", flags.reservoir_placement, _PLACEMENT),
    ):
        if value not in (None, default) and all(count is None for count in counts.values()):
            raise InputError(f"{flag_of(name)} {value}: has no effect without {next(iter(counts))}")
    how = [
        default if value is None else value
        for value, default in ((flags.reservoir_type, _TYPE), (flags.reservoir_placement, _PLACEMENT))
    ]
    unpruned = {name: slots(_letters(stack, depths[name], *how)) for name, stack in stacks.items()}
    return Plans({name: _kept(stacks[name], plan) for name, plan in unpruned.items()}, unpruned)


def _completed(flags: PlanFlags, plans: Plans) -> PlanFlags:
    """Add the expanded plans and their depths to the flags. Reset count, type and placement, because the plans contain them."""
    found: dict[str, Any] = {"reservoir_type": _TYPE, "reservoir_placement": _PLACEMENT}
    for name, plan in plans.unpruned.items():
        found |= {f"reservoir_{name}": "".join(slot.letter for slot in plan), f"{name}_layers": len(plan)}
    counts = ("reservoir_count", "reservoir_decoder_count")
    return replace(flags, **found, **dict.fromkeys(counts))


def check(options: Namespace, plans: Plans) -> None:
    """Refuse errors that can be found without building anything.

    Args:
        options: the complete options of a model.
        plans: the plans of these options.

    Raises:
        InputError: see ``check_layer_options``; or a width or number of heads that a layer of the plans cannot have, or a
            decoder in which no layer attends to the source.
    """
    check_layer_options(options)
    flags = read(ModelFlags, options)
    _check_attention_to_source(f"--reservoir-decoder {read(PlanFlags, options).reservoir_decoder}", flags, plans)
    noise = flags.quant_noise_scalar
    without_noise = kinds.letters_where(takes_scalar_noise=False)
    if noise and any(slot.letter in without_noise for plan in plans.unpruned.values() for slot in plan):
        raise InputError(
            f"--quant-noise-scalar {noise}: not supported in {kinds.listed(without_noise, 'or')} layers; remove the flag"
        )
    _check_flags_of_fairseqs_layer(flags, plans)
    for stack, plan in plans.unpruned.items():
        width, heads = (vars(flags)[f"{stack}_{name}"] for name in ("embed_dim", "attention_heads"))
        for slot in plan:
            if slot.kind.even_width and width % 2:
                raise InputError(f"--{stack}-embed-dim {width}: {slot.kind.letter} layers need an even width")
        if width % heads and any(slot.kind.heads_divide for slot in plan):
            raise InputError(f"--{stack}-attention-heads {heads}: must divide --{stack}-embed-dim {width}")


def _check_flags_of_fairseqs_layer(flags, plans):
    """Refuse flags that change only fairseq's own layers if the plan has other trained layers.

    Otherwise the two sorts of trained layers would differ in two respects: in their kind and in the effect of the flag.
    """
    slots = [slot for plan in plans.unpruned.values() for slot in plan]
    letters = sorted({slot.letter for slot in slots if not (slot.kind.fairseqs or slot.frozen)})
    for name in ("quant_noise_pq", *_GAINS):
        value = vars(flags)[name]
        if value and letters:
            raise InputError(
                f"{given(name, value)}: not supported in {kinds.listed(letters, 'or')} layers; remove the flag"
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


def _letters(stack: _Stack, depth: int, reservoir_type: str, placement: str) -> str:
    """The plan of a stack, one letter per layer."""
    flag, plan, count, layers = f"--reservoir-{stack.name}", stack.plan, stack.count, stack.layers
    if plan is not None and count is not None:
        raise InputError(f"{flag} {plan!r} and {stack.count_flag} {count}: give the plan or the count, not both")
    if plan is not None:
        plan = layer_plan.expand(plan, flag, stack.name)
        if layers not in (None, len(plan)):
            raise InputError(
                f"--{stack.name}-layers {layers}: {flag} {plan} has {len(plan)} layers; remove --{stack.name}-layers, because the plan "
                "sets the depth"
            )
        return plan
    if layers is not None and not 1 <= layers <= layer_plan.MOST_LAYERS:
        raise InputError(f"--{stack.name}-layers {layers}: must be at least 1 and at most {layer_plan.MOST_LAYERS}")
    plan = layer_plan.plan_by_count(layers or depth, count or 0, reservoir_type, placement, stack.count_flag)
    if count is None:
        return plan
    return layer_plan.expand(
        plan, f"{stack.count_flag} {count} of --reservoir-type {reservoir_type}, that is", stack.name
    )


def _kept(stack: _Stack, plan: tuple[layer_plan.Slot, ...]) -> tuple[layer_plan.Slot, ...]:
    """The slots that are built: all, or the slots in ``--encoder-layers-to-keep`` or ``--decoder-layers-to-keep``."""
    flag = f"--{stack.name}-layers-to-keep"
    return tuple(plan[i] for i in layers_kept(stack.to_keep, len(plan), flag)) if stack.to_keep else plan

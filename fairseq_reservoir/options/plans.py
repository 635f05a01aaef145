"""Resolve the layer plans of a model's flags to ``Plans``, once, and check them.

Flags are known long before the model is built. The architecture function resolves the plans, writes them and their depths into the
options, and checks them before any data is read. fairseq turns the options into text and copies them several times, so that they
cannot carry an object. Therefore ``resolve`` keeps the plans by the values of the completed flags, and the model is built from the
``Plans`` that the architecture function made. Options of hydra or of a checkpoint, and options that
``--model-overrides`` has changed, are resolved where the model is built.
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

# Factors within a layer of fairseq's language models.
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
            if isinstance(value, list):  # of --model-overrides
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


# The plans of completed flags, by these flags and the stacks of the model.
_resolved: dict[tuple[PlanFlags, tuple[str, ...]], Plans] = {}


def plans_of(options: Namespace, depths: dict[str, int]) -> Plans:
    """The checked plans of a model's complete options; see ``resolve`` and ``check``."""
    plans = resolve(options, depths)
    check(options, plans)
    return plans


def resolve(options: Any, depths: dict[str, int]) -> Plans:
    """The plans of a model, which are written into its options too: expanded, with their depths and without counts.

    Args:
        options: the model's options as far as they are known, before the architecture's own defaults.
        depths: the architecture's depth of each stack it has, for a stack with neither a plan nor an explicit depth.

    Raises:
        InputError: a plan does not parse, differs from an explicit depth, or comes with a count; a depth is below 1; a
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
    """The flags with plans written out and the depths that they set. Count, type and placement are in the plans now."""
    found: dict[str, Any] = {"reservoir_type": _TYPE, "reservoir_placement": _PLACEMENT}
    for name, plan in plans.unpruned.items():
        found |= {f"reservoir_{name}": "".join(slot.letter for slot in plan), f"{name}_layers": len(plan)}
    counts = ("reservoir_count", "reservoir_decoder_count")
    return replace(flags, **found, **dict.fromkeys(counts))


def check(options: Namespace, plans: Plans) -> None:
    """Refuse errors that can be found without building anything.

    Args:
        options: complete.
        plans: of these options.

    Raises:
        InputError: see ``check_layer_options``; or a width or number of heads that a layer of the plans cannot have, or a
            decoder in which no layer attends to the source.
    """
    check_layer_options(options)
    flags = read(ModelFlags, options)
    _check_that_the_source_is_seen(f"--reservoir-decoder {read(PlanFlags, options).reservoir_decoder}", flags, plans)
    noise = flags.quant_noise_scalar
    deaf = kinds.letters_where(takes_scalar_noise=False)
    if noise and any(slot.letter in deaf for plan in plans.unpruned.values() for slot in plan):
        raise InputError(
            f"--quant-noise-scalar {noise}: not with {kinds.listed(deaf, 'or')} layers, which it cannot read; leave it out"
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
    """Refuse flags that only fairseq's own layers follow if another layer is trained, since the layers would differ in two respects."""
    slots = [slot for plan in plans.unpruned.values() for slot in plan]
    letters = sorted({slot.letter for slot in slots if not (slot.kind.fairseqs or slot.frozen)})
    for name in ("quant_noise_pq", *_GAINS):
        value = vars(flags)[name]
        if value and letters:
            raise InputError(
                f"{given(name, value)}: not with {kinds.listed(letters, 'or')} layers, which have none; leave it out"
            )


def _check_that_the_source_is_seen(plan, flags, plans):
    decoder = plans.built.get("decoder")
    if not decoder or "encoder" not in plans.built:
        return
    if flags.cross_self_attention and not all(slot.kind.fairseqs for slot in decoder):
        raise InputError(
            f"{plan}: with --cross-self-attention only {kinds.listed(kinds.letters_where('decoder', fairseqs=True))} layers"
        )
    if flags.no_cross_attention or any(slot.kind.sees_source for slot in decoder):
        return
    seeing = kinds.listed(kinds.letters_where("decoder", sees_source=True))
    if any(slot.kind.sees_source for slot in plans.unpruned["decoder"]):
        raise InputError(
            f"--decoder-layers-to-keep {flags.decoder_layers_to_keep}: of {plan} no layer that is kept sees the source; {seeing} do"
        )
    raise InputError(f"{plan}: no layer of it sees the source; {seeing} do")


def _letters(stack: _Stack, depth: int, reservoir_type: str, placement: str) -> str:
    """The plan of a stack, one letter per layer."""
    flag, plan, count, layers = f"--reservoir-{stack.name}", stack.plan, stack.count, stack.layers
    if plan is not None and count is not None:
        raise InputError(f"{flag} {plan!r} and {stack.count_flag} {count}: give the plan or the count, not both")
    if plan is not None:
        plan = layer_plan.expand(plan, flag, stack.name)
        if layers not in (None, len(plan)):
            raise InputError(
                f"--{stack.name}-layers {layers}: {flag} {plan} has {len(plan)} layers; leave --{stack.name}-layers out, the plan sets the"
                " depth"
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
    """The slots that are built: those that ``--encoder-layers-to-keep`` and the like leave."""
    flag = f"--{stack.name}-layers-to-keep"
    return tuple(plan[i] for i in layers_kept(stack.to_keep, len(plan), flag)) if stack.to_keep else plan

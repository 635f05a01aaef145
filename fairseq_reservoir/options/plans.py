"""Reads, completes and checks the layer plans of a model's flags: ``Plans``, from which the model is built.

With a command line, flags are known long before the model is built: the architecture function settles the plans, which set the
depths of the model, and checks them before any data is looked for. fairseq hands options on as text and numbers, so what the model
gets of this are plans written out, a letter per layer. It reads and checks them as those that no architecture function has seen,
of hydra's or of a checkpoint, or that ``--model-overrides`` has changed.
"""

from argparse import Namespace

from ..errors import InputError, flag_of
from ..plan import kinds, layer_plan
from ..plan.layer_plan import Plans, layers_kept, slots
from .layer_options import FrozenLayerOptions, check_layer_options

# Of fairseq's language models: factors within a layer.
_GAINS = ("scale_attn", "scale_fc", "scale_heads", "scale_resids")
_COUNTS = {"encoder": "reservoir_count", "decoder": "reservoir_decoder_count"}


def plans_of(options: Namespace, depths: dict[str, int]) -> Plans:
    """The checked plans of a model's complete options, in which plans and depths are filled in.

    Args:
        options: a namespace.
        depths: the layers of each stack that the model has, where neither a plan nor a depth is given.

    Raises:
        InputError: see ``settle`` and ``check``.
    """
    plans = settle(options, depths)
    check(options, plans)
    return plans


def settle(args, depths: dict[str, int]) -> Plans:
    """Turns plans, counts and depths as the user gave them into expanded plans and the depths they set, in place.

    Args:
        args: options as far as they are known, before the architecture's own defaults.
        depths: the architecture's depth of each stack it has, for a stack with neither a plan nor an explicit depth.

    Raises:
        InputError: a plan does not parse, differs from an explicit depth, or comes with a count; a depth is below 1; a
            count does not fit; a type or placement is given without a count; or layers to keep do not exist.
    """
    counts = {stack: getattr(args, _COUNTS[stack], None) for stack in depths}
    how = _type_and_placement(args, counts)
    unpruned = {}
    for stack, depth in depths.items():
        letters = _letters(args, stack, depth, counts[stack], **how)
        unpruned[stack] = slots(letters)
        setattr(args, f"reservoir_{stack}", letters)
        setattr(args, f"{stack}_layers", len(letters))
        setattr(args, _COUNTS[stack], None)
    # They are in the plans now.
    for name in how:
        setattr(args, name, _default(name))
    return Plans({stack: _kept(args, stack, plan) for stack, plan in unpruned.items()}, unpruned)


def check(options: Namespace, plans: Plans) -> None:
    """Refuses what can be seen to be wrong without building anything.

    Args:
        options: complete.
        plans: of these options.

    Raises:
        InputError: see ``check_layer_options``; or a width or number of heads that a layer of the plans cannot have, or a
            decoder in which no layer attends to the source.
    """
    check_layer_options(options)
    _check_that_the_source_is_seen(options, plans)
    noise = getattr(options, "quant_noise_scalar", None)
    deaf = kinds.letters_where(takes_scalar_noise=False)
    if noise and any(slot.letter in deaf for plan in plans.unpruned.values() for slot in plan):
        raise InputError(
            f"--quant-noise-scalar {noise}: not with {kinds.listed(deaf, 'or')} layers, which it cannot read; leave it out"
        )
    _check_flags_of_fairseqs_layer(options, plans)
    for stack, plan in plans.unpruned.items():
        width, heads = getattr(options, f"{stack}_embed_dim"), getattr(options, f"{stack}_attention_heads")
        for slot in plan:
            if slot.kind.even_width and width % 2:
                raise InputError(f"--{stack}-embed-dim {width}: {slot.kind.letter} layers need an even width")
        if width % heads and any(slot.kind.heads_divide for slot in plan):
            raise InputError(f"--{stack}-attention-heads {heads}: must divide --{stack}-embed-dim {width}")


def _check_flags_of_fairseqs_layer(options, plans):
    """Refuses flags that only fairseq's own layers follow if any other layer is trained: two things would differ between the layers."""
    slots = [slot for plan in plans.unpruned.values() for slot in plan]
    letters = sorted({slot.letter for slot in slots if not (slot.kind.fairseqs or slot.frozen)})
    for name in ("quant_noise_pq", *_GAINS):
        value = getattr(options, name, None)
        if value and letters:
            given = "" if value is True else f" {value}"
            raise InputError(
                f"{flag_of(name)}{given}: not with {kinds.listed(letters, 'or')} layers, which have none; leave it out"
            )


def _check_that_the_source_is_seen(options, plans):
    decoder, plan = plans.built.get("decoder"), f"--reservoir-decoder {getattr(options, 'reservoir_decoder', None)}"
    if not decoder or "encoder" not in plans.built:
        return
    if getattr(options, "cross_self_attention", False) and not all(slot.kind.fairseqs for slot in decoder):
        raise InputError(
            f"{plan}: with --cross-self-attention only {kinds.listed(kinds.letters_where('decoder', fairseqs=True))} layers"
        )
    if getattr(options, "no_cross_attention", False) or any(slot.kind.sees_source for slot in decoder):
        return
    seeing = kinds.listed(kinds.letters_where("decoder", sees_source=True))
    if any(slot.kind.sees_source for slot in plans.unpruned["decoder"]):
        raise InputError(
            f"--decoder-layers-to-keep {options.decoder_layers_to_keep}: of {plan} no layer that is kept sees the source; {seeing} do"
        )
    raise InputError(f"{plan}: no layer of it sees the source; {seeing} do")


def _default(name):
    return FrozenLayerOptions.__dataclass_fields__[name].default


def _type_and_placement(args, counts):
    given = {name: getattr(args, name, None) for name in ("reservoir_type", "reservoir_placement")}
    how = {name: _default(name) if value is None else value for name, value in given.items()}
    for name, value in how.items():
        if value != _default(name) and all(count is None for count in counts.values()):
            raise InputError(f"{flag_of(name)} {value}: has no effect without {flag_of(_COUNTS[next(iter(counts))])}")
    return how


def _letters(args, stack, depth, count, reservoir_type, reservoir_placement):
    """The plan of a stack, one letter per layer."""
    plan_flag, count_flag = flag_of(f"reservoir_{stack}"), flag_of(_COUNTS[stack])
    plan, layers = getattr(args, f"reservoir_{stack}", None), getattr(args, f"{stack}_layers", None)
    if plan is not None and count is not None:
        raise InputError(f"{plan_flag} {plan!r} and {count_flag} {count}: give the plan or the count, not both")
    if plan is not None:
        plan = layer_plan.expand(plan, plan_flag, stack)
        if layers not in (None, len(plan)):
            raise InputError(
                f"--{stack}-layers {layers}: {plan_flag} {plan} has {len(plan)} layers; leave --{stack}-layers out, the plan sets the depth"
            )
        return plan
    if layers is not None and not 1 <= layers <= layer_plan.MOST_LAYERS:
        raise InputError(f"--{stack}-layers {layers}: must be at least 1 and at most {layer_plan.MOST_LAYERS}")
    plan = layer_plan.plan_by_count(layers or depth, count or 0, reservoir_type, reservoir_placement, count_flag)
    return layer_plan.expand(plan, f"{count_flag} {count} of --reservoir-type {reservoir_type}, that is", stack)


def _kept(args, stack, plan):
    """The slots that are built: those that ``--encoder-layers-to-keep`` and the like leave."""
    name = f"{stack}_layers_to_keep"
    to_keep = getattr(args, name, None)
    return tuple(plan[i] for i in layers_kept(to_keep, len(plan), flag_of(name))) if to_keep else plan

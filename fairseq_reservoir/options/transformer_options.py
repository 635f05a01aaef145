"""The options of our Transformer models: fairseq's own, flat, and the flags of the plugin.

fairseq's ``TransformerConfig`` is nested, which its command line cannot register; a flat dataclass serves the command
line, hydra and checkpoints alike, and ``as_transformer_config`` makes the nested one from it.
"""

from argparse import Namespace
from dataclasses import MISSING, dataclass, field, fields, make_dataclass
from typing import Optional

from fairseq.dataclass import FairseqDataclass
from fairseq.models.transformer import TransformerConfig
from omegaconf import II, DictConfig, OmegaConf

from ..errors import InputError
from ..layers.backskip import ESTIMATORS
from ..layers.frozen_dtype import DTYPES
from ..plan import freeze_spec, kinds, layer_plan

NORMS = ("paper", "model")
ADAPTERS = ("lora", "vera")
_TYPES_OF_RESERVOIRS = kinds.listed([f"{name} ({letter})" for name, letter in kinds.reservoir_types().items()], "or")


def option(default, help_text, metavar=""):
    return field(default=default, metadata={"help": help_text, "metavar": metavar})


@dataclass
class EncoderPlanOptions(FairseqDataclass):
    """The flags that place the layers of an encoder."""

    reservoir_encoder: Optional[str] = option(
        None,
        "layer plan of the encoder, one letter per layer, bottom first, as in LLFLFLL or 2LFLF2L. Sets the depth. Default: all L. "
        f"{kinds.in_words('encoder')}",
        "PLAN",
    )
    reservoir_count: Optional[int] = option(
        None, "instead of --reservoir-encoder: how many of the --encoder-layers are reservoirs", "N"
    )


@dataclass
class DecoderPlanOptions(FairseqDataclass):
    """The flags that place the layers of a decoder."""

    reservoir_decoder: Optional[str] = option(
        None,
        f"layer plan of the decoder. Default: all L. {kinds.in_words('decoder')}. The attention to the source of frozen "
        f"{kinds.listed(kinds.frozen_letters('decoder', sees_source=True, fairseqs=False))} is trained",
        "PLAN",
    )
    reservoir_decoder_count: Optional[int] = option(
        None, "instead of --reservoir-decoder: how many of the --decoder-layers are reservoirs", "N"
    )


@dataclass
class ComponentOptions(FairseqDataclass):
    """The flags that freeze components, of our models and of fairseq's, and the seed of what is random."""

    reservoir_seed: int = option(II("common.seed"), "seed of the frozen tensors. Default: --seed", "N")
    freeze: Optional[str] = option(
        None,
        "further components to freeze at their initial values: a comma list of "
        "[encoder.|decoder.][layers.<i>[-<j>].][<component>], component one of emb, att, self_att, cross_att, q, k, v, o, "
        "ffn, fc1, fc2, ln, pos, out, other, bias. Example: emb,encoder.ffn",
        "SPEC",
    )
    freeze_except: Optional[str] = option(
        None,
        "freeze everything but these components, written as for --freeze; what the model does not have, as pos where positions are "
        "sinusoidal, is passed over. Example: ln,pos,emb,out",
        "SPEC",
    )
    frozen_init: str = option(
        "model",
        "what --freeze and --freeze-except freeze things at: model, the values that the model starts with, which follow --seed; "
        "or matrices drawn from --reservoir-seed and their names, each projection by itself: orthogonal, glorot, "
        "kaiming_uniform or signed_constant; or diagonal, ones on the diagonal and zeros elsewhere, square or not (the likely "
        "reading of the undefined \"diagonal zeroed\" of Bogoychev, 2021); or zero. Biases become 0, LayerNorms 1 and 0, "
        "rows of embeddings get length 1. Default: model",
        "INIT",
    )
    frozen_adapter: Optional[str] = option(
        None,
        "train a small change of every frozen matrix of attention and feed-forward blocks, 0 at the start: lora, a product of "
        "two trained matrices (Hu et al., 2021), or vera, trained vectors around two random ones that all depths share "
        "(Kopiczko et al., 2024)",
        "KIND",
    )
    frozen_adapter_rank: int = option(8, "rank of the change that --frozen-adapter trains. Default: 8", "R")


@dataclass
class FrozenLayerOptions(ComponentOptions):
    """The flags of every model with a layer plan, whatever stacks it has."""

    reservoir_type: str = option(
        "ffn", f"what --reservoir-count puts there: {_TYPES_OF_RESERVOIRS}. Default: ffn", "TYPE"
    )
    reservoir_placement: str = option(
        "alternate",
        "where --reservoir-count puts them: alternate with ordinary layers around the middle, as in the paper "
        "(7 layers, 2 reservoirs: LLFLFLL), or in one block at bottom, middle or top. Default: alternate",
        "PLACE",
    )
    reservoir_norm: str = option(
        "paper",
        f"LayerNorm of {kinds.listed(kinds.letters(own_norm=True))} layers: paper puts it before the layer's function even in a post-norm model; model "
        "follows --encoder-normalize-before. Default: paper",
        "NORM",
    )
    reservoir_train_layernorm: bool = option(False, "train the LayerNorms of frozen layers (default: frozen at 1 and 0)")
    reservoir_no_dropout: bool = option(False, "no dropout inside frozen layers (default: as in the others)")
    reservoir_kernel_sizes: str = option(
        "3,7,15,31",
        f"odd kernel sizes of {kinds.listed(kinds.letters(kernel_sizes=True))} layers by depth; the last one serves all deeper layers. Default: 3,7,15,31",
        "SIZES",
    )
    frozen_dtype: str = option(
        "fp32",
        "type of the matrices of wholly frozen layers, and of their products: bf16 halves their memory, and is faster where the processor "
        "has instructions for it. With --bf16 the whole model has that type anyway; with --fp16 it is refused. Default: fp32",
        "TYPE",
    )
    reservoir_fast_dropout: bool = option(
        False,
        "draw dropout's random numbers on a CPU sixteen bits an entry from a fast generator, instead of one after the other as floats: "
        "the same distribution, other numbers than fairseq's. Changes nothing on a GPU",
    )
    backskip: Optional[str] = option(
        None,
        "skip the backward pass through wholly frozen layers, and hand the layer below an estimated gradient: synthetic, from a "
        "regression on true gradients, reinforce, the paper's, a value network and noise on the layer's input, or identity, the "
        "gradient above the layer as it is",
        "KIND",
    )
    backskip_warmup: int = option(100, "updates with true gradients only, before --backskip-anneal sets in. Default: 100", "N")
    backskip_anneal: float = option(
        0.99,
        "probability of a true gradient in the first update after --backskip-warmup; it is multiplied by itself from update to update. 1: always, 0: "
        "never. Default: 0.99",
        "P",
    )



@dataclass
class ReservoirOptions(FrozenLayerOptions, DecoderPlanOptions, EncoderPlanOptions):
    """The flags of a model with a layer plan for its encoder and one for its decoder."""


def _flat_transformer_fields():
    """fairseq's nested fields as (name, type, field) of a flat dataclass: ``encoder.embed_dim`` -> ``encoder_embed_dim``."""
    for outer in fields(TransformerConfig):
        if outer.name.startswith("_"):
            continue
        if outer.name not in ("encoder", "decoder", "quant_noise"):
            yield outer.name, outer.type, field(default=outer.default, metadata=dict(outer.metadata))
            continue
        for inner in fields(outer.type):
            if inner.name.startswith("_"):
                continue
            name = f"{outer.name}_{inner.name}"
            default = inner.default if inner.default is not MISSING else None
            kind = _TYPES.get(inner.name, inner.type)
            yield name, kind, field(default=_DEFAULTS.get(name, default), metadata=dict(inner.metadata))


# fairseq reads layers_to_keep as text ("0,2") although it declares a list; a depth that is not given follows from the plan.
_TYPES = {"layers_to_keep": Optional[str], "layers": Optional[int]}
# The decoder follows the encoder unless told otherwise, as fairseq's architecture functions have it.
_DEFAULTS = {
    "encoder_layers": None,
    "decoder_layers": None,
    "decoder_embed_dim": II("model.encoder_embed_dim"),
    "decoder_ffn_embed_dim": II("model.encoder_ffn_embed_dim"),
    "decoder_input_dim": II("model.decoder_embed_dim"),
    "decoder_output_dim": II("model.decoder_embed_dim"),
}

FlatTransformerConfig = make_dataclass(
    "FlatTransformerConfig", _flat_transformer_fields(), bases=(FairseqDataclass,), namespace={"__module__": __name__}
)


@dataclass
class ReservoirTransformerConfig(FlatTransformerConfig, ReservoirOptions):
    """Options of ``reservoir_transformer``: those of fairseq's ``transformer`` and those of ``ReservoirOptions``."""


# Sizes of the presets that are not fairseq's.
TINY = {
    "encoder_embed_dim": 64,
    "encoder_ffn_embed_dim": 128,
    "encoder_layers": 2,
    "encoder_attention_heads": 2,
    "decoder_layers": 2,
    "decoder_attention_heads": 2,
}
STUDY = {
    "encoder_embed_dim": 128,
    "encoder_ffn_embed_dim": 512,
    "encoder_layers": 3,
    "encoder_attention_heads": 4,
    "decoder_layers": 2,
    "decoder_attention_heads": 4,
    "share_decoder_input_output_embed": True,
}


# fairseq's defaults of what a model's options follow outside the model's group.
_OF_OTHER_GROUPS = {"seed": 1, "add_bos_token": False, "tokens_per_sample": 1024, "tpu": False}


def fill_defaults(args, dataclass) -> None:
    """Gives options that are missing the dataclass's defaults, but for those that follow another option."""
    for option in fields(dataclass):
        if not hasattr(args, option.name) and not str(option.default).startswith("${"):
            setattr(args, option.name, option.default)


def follow_seed(args, name: str) -> None:
    """Sets the seed ``name`` to ``--seed`` if nobody has set it: a namespace cannot follow the dataclass's ``${common.seed}``."""
    if not hasattr(args, name):
        setattr(args, name, getattr(args, "seed", 1))


def fill_in(args, values: dict) -> None:
    """Gives options that nobody has set the ``values`` of a preset."""
    for name, value in values.items():
        if getattr(args, name, None) is None:
            setattr(args, name, value)


def as_namespace(cfg) -> Namespace:
    """A copy of a model's options as a plain namespace, whether they come from argparse, hydra or a dataclass."""
    if isinstance(cfg, DictConfig):
        return Namespace(**OmegaConf.to_container(cfg, resolve=True, enum_to_str=True))
    options = Namespace(**vars(cfg))
    # Outside hydra nobody resolves the defaults that follow another option.
    for name, value in vars(options).items():
        followed = {name}
        while isinstance(value, str) and value.startswith("${"):
            other = value[2:-1].split(".")[-1]
            here = hasattr(options, other) and other not in followed
            value = getattr(options, other) if here else _OF_OTHER_GROUPS.get(other)
            followed.add(other)
        setattr(options, name, value)
    return options


def as_transformer_config(options: Namespace) -> TransformerConfig:
    """fairseq's nested configuration, which keeps our flags as further attributes."""
    return TransformerConfig.from_namespace(options)


def read_numbers(args, names=(*_DEFAULTS, "reservoir_seed", "mask_seed")) -> None:
    """Turns the numbers that the command line leaves as text into integers, in place.

    fairseq gives a flag no type if its default follows another option.

    Raises:
        InputError: one of them is not a whole number.
    """
    for name in names:
        value = getattr(args, name, None)
        if isinstance(value, str) and not value.startswith("${"):
            try:
                setattr(args, name, int(value))
            except ValueError:
                raise InputError(f"{flag_of(name)} {value!r}: must be a whole number") from None


def resolve_plans(args, depths: dict[str, int]) -> None:
    """Turns plans, counts and depths as the user gave them into expanded plans and the depths they set, in place.

    Args:
        args: options as far as they are known, before the architecture's own defaults. Applying this again changes nothing.
        depths: the architecture's depth of each stack it has, for a stack with neither a plan nor an explicit depth.

    Raises:
        InputError: a plan does not parse, differs from an explicit depth, or comes with a count; a depth is below 1; a
            count does not fit; or a type or placement is given without a count.
    """
    counts = {stack: getattr(args, _COUNTS[stack], None) for stack in depths}
    how = {}
    for name in ("reservoir_type", "reservoir_placement"):
        default = FrozenLayerOptions.__dataclass_fields__[name].default
        how[name] = getattr(args, name, None) or default
        if how[name] != default and all(count is None for count in counts.values()):
            raise InputError(f"{flag_of(name)} {how[name]}: has no effect without {flag_of(_COUNTS[next(iter(depths))])}")
    for stack, depth in depths.items():
        plan_flag, count_flag = flag_of(f"reservoir_{stack}"), flag_of(_COUNTS[stack])
        plan, count = getattr(args, f"reservoir_{stack}", None), counts[stack]
        layers = getattr(args, f"{stack}_layers", None)
        if plan is not None and count is not None:
            raise InputError(f"{plan_flag} {plan!r} and {count_flag} {count}: give the plan or the count, not both")
        if plan is not None:
            plan = layer_plan.expand(plan, plan_flag, stack)
            if layers not in (None, len(plan)):
                raise InputError(
                    f"--{stack}-layers {layers}: {plan_flag} {plan} has {len(plan)} layers; leave --{stack}-layers out, the "
                    "plan sets the depth"
                )
        else:
            if layers is not None and layers < 1:
                raise InputError(f"--{stack}-layers {layers}: must be at least 1")
            kind = how["reservoir_type"]
            plan = layer_plan.place(layers or depth, count or 0, kind, how["reservoir_placement"], count_flag)
            plan = layer_plan.expand(plan, f"{count_flag} {count} of --reservoir-type {kind}, that is", stack)
        setattr(args, f"reservoir_{stack}", plan)
        setattr(args, f"{stack}_layers", len(plan))
        setattr(args, _COUNTS[stack], None)
    # They are in the plans now.
    for name in how:
        setattr(args, name, FrozenLayerOptions.__dataclass_fields__[name].default)


def check_options(options: Namespace) -> None:
    """Refuses what can be seen to be wrong without building anything; ``options`` are complete.

    Raises:
        InputError: an unknown norm, an unusable kernel size, an odd width under G, heads that do not divide the width
            under C or S, a freeze spec that does not parse, or a decoder in which no layer attends to the source.
    """
    if options.reservoir_norm not in NORMS:
        raise InputError(f"--reservoir-norm {options.reservoir_norm!r}: choose from {', '.join(NORMS)}")
    kernel_sizes(options.reservoir_kernel_sizes)
    decoder, seeing = getattr(options, "reservoir_decoder", None), kinds.letters("decoder", sees_source=True)
    has_source = hasattr(options, "reservoir_encoder") and not getattr(options, "no_cross_attention", False)
    if decoder and has_source and not set(decoder) & set(seeing):
        raise InputError(f"--reservoir-decoder {decoder}: no layer of it sees the source; {kinds.listed(seeing)} do")
    check_components(options)
    _check_engine(options)
    for stack in ("encoder", "decoder"):
        plan = [kinds.kind_of(letter) for letter in getattr(options, f"reservoir_{stack}", None) or ""]
        width, heads = getattr(options, f"{stack}_embed_dim", 0), getattr(options, f"{stack}_attention_heads", 1)
        for kind in plan if width % 2 else ():
            if kind.even_width:
                raise InputError(f"--{stack}-embed-dim {width}: {kind.letter} layers need an even width")
        if (heads < 1 or width % heads) and any(kind.heads_divide for kind in plan):
            raise InputError(f"--{stack}-attention-heads {heads}: must divide --{stack}-embed-dim {width}")


def _check_engine(options):
    if options.frozen_dtype not in DTYPES:
        raise InputError(f"--frozen-dtype {options.frozen_dtype!r}: choose from {', '.join(DTYPES)}")
    if options.backskip not in (None, *ESTIMATORS):
        raise InputError(f"--backskip {options.backskip!r}: choose from {', '.join(ESTIMATORS)}")
    if options.backskip_warmup < 0:
        raise InputError(f"--backskip-warmup {options.backskip_warmup}: must be at least 0")
    if not 0 <= options.backskip_anneal <= 1:
        raise InputError(f"--backskip-anneal {options.backskip_anneal:g}: must be from 0 to 1")
    for name in ("backskip_warmup", "backskip_anneal") if options.backskip is None else ():
        value = getattr(options, name)
        if value != getattr(FrozenLayerOptions, name):
            raise InputError(f"{flag_of(name)} {value:g}: has no effect without --backskip")


def check_components(options: Namespace) -> None:
    """Refuses freeze specs that do not parse, and initial values and adapters that are unknown or for nothing.

    Raises:
        InputError: one line with the flag.
    """
    specs = {flag_of(name): getattr(options, name) for name in ("freeze", "freeze_except")}
    for flag, spec in specs.items():
        freeze_spec.parse(spec or "", flag)
    if options.frozen_init not in freeze_spec.FROZEN_INITS:
        raise InputError(f"--frozen-init {options.frozen_init!r}: choose from {', '.join(freeze_spec.FROZEN_INITS)}")
    if options.frozen_init != "model" and not any(specs.values()):
        raise InputError(f"--frozen-init {options.frozen_init}: has no effect without {' or '.join(specs)}")
    if options.frozen_adapter not in (None, *ADAPTERS):
        raise InputError(f"--frozen-adapter {options.frozen_adapter!r}: choose from {', '.join(ADAPTERS)}")
    rank = options.frozen_adapter_rank
    if rank < 1:
        raise InputError(f"--frozen-adapter-rank {rank}: must be at least 1")
    if options.frozen_adapter is None and rank != ComponentOptions.frozen_adapter_rank:
        raise InputError(f"--frozen-adapter-rank {rank}: has no effect without --frozen-adapter")


def kernel_sizes(text: str) -> tuple[int, ...]:
    """``"3,7"`` -> ``(3, 7)``."""
    sizes = text.split(",")
    if not all(s.strip().isdecimal() and int(s) % 2 for s in sizes):
        raise InputError(f"--reservoir-kernel-sizes {text!r}: a comma list of odd numbers, as in 3,7,15,31")
    return tuple(int(s) for s in sizes)


def flag_of(name: str) -> str:
    """The flag of an option: ``mask_pin`` -> ``--mask-pin``."""
    return "--" + name.replace("_", "-")


_COUNTS = {"encoder": "reservoir_count", "decoder": "reservoir_decoder_count"}

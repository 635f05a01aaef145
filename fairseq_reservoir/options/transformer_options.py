"""fairseq's options of a Transformer, flat, and what becomes of them on the way to a model.

fairseq's ``TransformerConfig`` is nested, which its command line cannot register; a flat dataclass serves the command
line, hydra and checkpoints alike, and ``as_transformer_config`` makes the nested one from it.
"""

from argparse import Namespace
from dataclasses import MISSING, dataclass, field, fields, make_dataclass
from typing import Any, Optional

from fairseq.dataclass import FairseqDataclass
from fairseq.models.transformer import TransformerConfig
from omegaconf import II, DictConfig, OmegaConf

from ..errors import InputError, flag_of
from .layer_options import ReservoirOptions


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

FlatTransformerConfig: Any = make_dataclass(
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


# What a number may be that nobody has given.
_FOLLOWED = {*_DEFAULTS.values(), II("common.seed")}
_MOST = 2**63 - 1


def read_numbers(args, names=(*_DEFAULTS, "reservoir_seed", "mask_seed")) -> None:
    """Turns the numbers that the command line leaves as text into integers, in place.

    fairseq gives a flag no type if its default follows another option.

    Raises:
        InputError: one of them is not a whole number of 64 bits.
    """
    for name in names:
        value = getattr(args, name, None)
        if isinstance(value, str) and value not in _FOLLOWED:
            try:
                value = int(value)
            except ValueError:
                raise InputError(f"{flag_of(name)} {value!r}: must be a whole number") from None
            setattr(args, name, value)
        if isinstance(value, int) and not -_MOST <= value <= _MOST:
            raise InputError(f"{flag_of(name)} {value}: must be a whole number of 64 bits")

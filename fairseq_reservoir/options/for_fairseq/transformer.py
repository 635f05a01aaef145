"""fairseq's options of a Transformer as one flat dataclass, and the options of our models.

fairseq's ``TransformerConfig`` is nested, and fairseq's command line cannot register nested options. The command line, hydra and
checkpoints use the flat dataclass. ``as_transformer_config`` converts the flat form to the nested form.
"""

from argparse import Namespace
from dataclasses import MISSING, dataclass, field, fields, make_dataclass
from typing import Any, Optional

from fairseq.dataclass import FairseqDataclass
from fairseq.models.transformer import TransformerConfig

from ..fairseq_rules import FOLLOWED_WIDTHS
from ..layer_options import ReservoirOptions
from ..supermask_options import MaskOptions


def _flat_transformer_fields():
    """Flatten fairseq's nested fields: ``encoder.embed_dim`` -> ``encoder_embed_dim``. Yield (name, type, field) of each flat field."""
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


# fairseq reads layers_to_keep as text ("0,2") although it declares a list. A depth may be missing, because the plan sets it.
_TYPES = {"layers_to_keep": Optional[str], "layers": Optional[int]}
# If the decoder's widths are not given, they are the encoder's widths, as in fairseq's architecture functions.
_DEFAULTS = {
    "encoder_layers": None,
    "decoder_layers": None,
    **{name: f"${{model.{followed}}}" for name, followed in FOLLOWED_WIDTHS.items()},
}

FlatTransformerConfig: Any = make_dataclass(
    "FlatTransformerConfig", _flat_transformer_fields(), bases=(FairseqDataclass,), namespace={"__module__": __name__}
)


@dataclass
class ReservoirTransformerConfig(FlatTransformerConfig, ReservoirOptions, FairseqDataclass):
    """Options of ``reservoir_transformer``: the options of fairseq's ``transformer``, and ``ReservoirOptions``."""


@dataclass
class SupermaskTransformerConfig(FlatTransformerConfig, MaskOptions, FairseqDataclass):
    """Options of ``supermask_one_layer_transformer``: the options of fairseq's ``transformer``, and ``MaskOptions``."""


# Sizes of our own presets.
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


def as_transformer_config(options: Namespace) -> TransformerConfig:
    """Return fairseq's nested configuration, with our flags as further attributes."""
    return TransformerConfig.from_namespace(options)

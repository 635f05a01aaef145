"""``--arch reservoir_transformer``: a Transformer some of whose layers are random and never trained."""

from functools import partial

from fairseq.models import register_model
from fairseq.models.transformer import TransformerModelBase, transformer_legacy

from ..identity import CheckpointIdentity
from ..layer_plan import slots
from ..philox import GENERATOR
from ..presets import register, reservoir_preset
from ..reservoir_build import freeze_and_fill
from ..reservoir_stacks import ReservoirDecoder, ReservoirEncoder
from ..transformer_options import (
    STUDY,
    TINY,
    ReservoirTransformerConfig,
    as_namespace,
    as_transformer_config,
    check_options,
    resolve_plans,
)

DEPTHS = {"encoder": 6, "decoder": 6}


@register_model("reservoir_transformer", dataclass=ReservoirTransformerConfig)
class ReservoirTransformer(CheckpointIdentity, TransformerModelBase):
    """fairseq's Transformer for translation with a layer plan (Shen et al., 2021, "Reservoir Transformers").

    A plan of only ``L`` is fairseq's ``transformer`` bit for bit. ``slot_table`` says what is frozen. Frozen tensors are
    parameters without gradient: they let gradients through to the layers below and take part in no update.
    """

    identity_flags = {
        "encoder": "--reservoir-encoder",
        "decoder": "--reservoir-decoder",
        "seed": "--reservoir-seed",
        "generator": "generator of frozen tensors",
        "norm": "--reservoir-norm",
        "kernel_sizes": "--reservoir-kernel-sizes",
    }
    resume_flags = {
        "freeze": "--freeze",
        "freeze_except": "--freeze-except",
        "train_layernorm": "--reservoir-train-layernorm",
    }

    @classmethod
    def add_args(cls, parser):
        super(TransformerModelBase, cls).add_args(parser)

    @classmethod
    def build_model(cls, cfg, task):
        """Builds the model, freezes what its slot table freezes and fills in the reservoirs.

        Raises:
            InputError: the options contradict each other; the message names the flag.
        """
        options = as_namespace(cfg)
        resolve_plans(options, DEPTHS)
        check_options(options)
        config = as_transformer_config(options)
        config.plans = {
            stack: slots(
                getattr(options, f"reservoir_{stack}"),
                getattr(options, f"{stack}_layers_to_keep"),
                f"--{stack}-layers-to-keep",
            )
            for stack in DEPTHS
        }
        model = super().build_model(config, task)
        model.slot_table = freeze_and_fill(model, config.plans, options)
        model.remember_identity(_identity(config.plans, options), _identity(_unpruned(config.plans, options), options))
        return model

    @classmethod
    def build_encoder(cls, cfg, src_dict, embed_tokens):
        return ReservoirEncoder(cfg, src_dict, embed_tokens, cfg.plans["encoder"])

    @classmethod
    def build_decoder(cls, cfg, tgt_dict, embed_tokens):
        return ReservoirDecoder(
            cfg, tgt_dict, embed_tokens, cfg.plans["decoder"], no_encoder_attn=cfg.no_cross_attention
        )


def _unpruned(plans, options):
    return {stack: slots(getattr(options, f"reservoir_{stack}")) for stack in plans}


def _identity(plans, options):
    frozen = any(slot.frozen for stack in plans.values() for slot in stack)
    kinds = {slot.kind for stack in plans.values() for slot in stack}

    def unusual(name, matters):
        """The option's value if it is not the default and the plan has layers that it changes."""
        value = getattr(options, name)
        return value if matters and value != ReservoirTransformerConfig.__dataclass_fields__[name].default else None

    return {
        **{stack: "".join(slot.letter for slot in plan) for stack, plan in plans.items()},
        "origins": {stack: [slot.origin for slot in plan] for stack, plan in plans.items()},
        "seed": options.reservoir_seed if frozen else None,
        "generator": GENERATOR if frozen else None,
        "norm": unusual("reservoir_norm", kinds - {"L"}),
        "kernel_sizes": unusual("reservoir_kernel_sizes", "C" in kinds),
        "freeze": options.freeze,
        "freeze_except": options.freeze_except,
        "train_layernorm": unusual("reservoir_train_layernorm", frozen),
    }


preset = partial(reservoir_preset, ReservoirTransformerConfig, DEPTHS)
PRESETS = {
    "tiny": preset(transformer_legacy.base_architecture, **TINY),
    "study": preset(transformer_legacy.base_architecture, **STUDY),
    "iwslt_de_en": preset(transformer_legacy.transformer_iwslt_de_en),
    "iwslt_de_en_2dec": preset(
        transformer_legacy.transformer_iwslt_de_en, decoder_layers=2, share_decoder_input_output_embed=True
    ),
    "wmt_en_de": preset(transformer_legacy.transformer_wmt_en_de),
    "wmt_en_de_1dec": preset(
        transformer_legacy.transformer_wmt_en_de, decoder_layers=1, share_decoder_input_output_embed=True
    ),
    "wmt_en_de_big": preset(transformer_legacy.transformer_wmt_en_de_big),
}  # fmt: skip
register("reservoir_transformer", PRESETS, preset(transformer_legacy.base_architecture))

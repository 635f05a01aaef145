"""``--arch supermask_one_layer_transformer``: one random layer per stack, seen through a learned mask at every depth."""

from fairseq.models import ARCH_CONFIG_REGISTRY, register_model, register_model_architecture
from fairseq.models.transformer import TransformerModelBase, transformer_legacy

from ..errors import InputError
from ..identity import CheckpointIdentity
from ..layer_plan import slots
from ..modules.mask_cache import share_mask_cache
from ..philox import GENERATOR
from ..supermask_build import build_embedding, compile_mask_table, draw_frozen_projection
from ..supermask_options import MaskOptions, SupermaskTransformerConfig, check_mask_options
from ..supermask_recipes import mask_recipes
from ..supermask_stacks import MaskedParts, SupermaskDecoder, SupermaskEncoder
from ..transformer_options import (
    STUDY,
    TINY,
    as_namespace,
    as_transformer_config,
    fill_defaults,
    fill_in,
    flag_of,
    read_numbers,
)

STACKS = ("encoder", "decoder")
IDENTITY = [name for name in MaskOptions.__dataclass_fields__ if not name.startswith("_") and name != "freeze"]


@register_model("supermask_one_layer_transformer", dataclass=SupermaskTransformerConfig)
class SupermaskOneLayerTransformer(CheckpointIdentity, TransformerModelBase):
    """One random frozen encoder layer and one random frozen decoder layer, each applied L times through L learned masks.

    Every weight matrix of layer i is W * M_i, with W shared by all layers of the stack (``--mask-share none``: of its own)
    and M_i the top share of learned scores (Shen et al., 2021, "What's Hidden in a One-layer Randomly Weighted
    Transformer?"). No biases. Trained: the scores, and with ``--mask-layernorm affine`` the LayerNorms.
    """

    identity_flags = {
        "encoder_layers": "--encoder-layers",
        "decoder_layers": "--decoder-layers",
        "generator": "generator of frozen tensors",
        **{name: flag_of(name) for name in IDENTITY},
    }
    resume_flags = {"freeze": "--freeze"}

    @classmethod
    def add_args(cls, parser):
        super(TransformerModelBase, cls).add_args(parser)

    @classmethod
    def build_model(cls, cfg, task):
        """Builds the model around one random layer per stack.

        Raises:
            InputError: an option has a value that no mask can have; the message names the flag.
        """
        options = as_namespace(cfg)
        check_mask_options(options)
        if options.adaptive_softmax_cutoff is not None and options.mask_embeddings == "masked":
            raise InputError("--adaptive-softmax-cutoff: needs --mask-embeddings trained or frozen")
        config = as_transformer_config(options)
        depths = {stack: getattr(options, f"{stack}_layers") or 6 for stack in STACKS}
        plans = {
            stack: slots("L" * depth, getattr(options, f"{stack}_layers_to_keep"), f"--{stack}-layers-to-keep")
            for stack, depth in depths.items()
        }
        config.encoder.layers, config.decoder.layers = depths["encoder"], depths["decoder"]
        config.parts = {stack: MaskedParts(stack, options, plans[stack]) for stack in STACKS}
        config.embeddings = iter(STACKS)  # fairseq asks for them in this order, without saying whose
        model = super().build_model(config, task)
        projection = model.decoder.output_projection
        if options.mask_embeddings == "frozen" and not model.decoder.share_input_output_embed and projection is not None:
            draw_frozen_projection(projection, options.mask_seed)
        share_mask_cache(model)
        model.slot_table = compile_mask_table(model, plans, options)
        model.recipes = mask_recipes(model, config.parts)
        identity = {name: getattr(options, name) for name in (*IDENTITY, "freeze")} | {"generator": GENERATOR}
        unpruned = identity | {f"{stack}_layers": depth for stack, depth in depths.items()}
        kept = identity | {f"{stack}_layers": len(plan) for stack, plan in plans.items()}
        model.remember_identity(kept, unpruned)
        return model

    @classmethod
    def build_embedding(cls, cfg, dictionary, embed_dim, path=None):
        return build_embedding(next(cfg.embeddings), cfg, dictionary, embed_dim, path)

    @classmethod
    def build_encoder(cls, cfg, src_dict, embed_tokens):
        return SupermaskEncoder(cfg, src_dict, embed_tokens, cfg.parts["encoder"])

    @classmethod
    def build_decoder(cls, cfg, tgt_dict, embed_tokens):
        return SupermaskDecoder(
            cfg, tgt_dict, embed_tokens, cfg.parts["decoder"], no_encoder_attn=cfg.no_cross_attention
        )


def preset(fairseq_preset, **sizes):
    """An architecture function: ``sizes`` before one of fairseq's presets."""

    def fill(args):
        read_numbers(args)
        fill_in(args, {"encoder_layers": 6, "decoder_layers": 6, **sizes})
        fairseq_preset(args)
        fill_defaults(args, SupermaskTransformerConfig)
        check_mask_options(args)

    return fill


_WIDE = {"encoder_embed_dim": 1024, "encoder_ffn_embed_dim": 2048, "decoder_embed_dim": 1024, "decoder_ffn_embed_dim": 2048}
_DEEP = {"encoder_layers": 12, "decoder_layers": 12}
PRESETS = {
    "tiny": preset(transformer_legacy.base_architecture, **TINY),
    "study": preset(transformer_legacy.base_architecture, **STUDY),
    "iwslt_de_en": preset(transformer_legacy.transformer_iwslt_de_en, share_decoder_input_output_embed=True),
    "wide_iwslt_de_en": preset(
        transformer_legacy.transformer_iwslt_de_en, share_decoder_input_output_embed=True, **_WIDE
    ),
    "deep_iwslt_de_en": preset(
        transformer_legacy.transformer_iwslt_de_en, share_decoder_input_output_embed=True, **_DEEP
    ),
    "wmt_en_de": preset(transformer_legacy.transformer_wmt_en_de, share_decoder_input_output_embed=True),
    "wider_wmt_en_de": preset(
        transformer_legacy.transformer_wmt_en_de, share_decoder_input_output_embed=True,
        **{**_WIDE, "encoder_ffn_embed_dim": 4096, "decoder_ffn_embed_dim": 4096,
           "encoder_attention_heads": 16, "decoder_attention_heads": 16},
    ),
    "deeper_wmt_en_de": preset(
        transformer_legacy.transformer_wmt_en_de, share_decoder_input_output_embed=True, **_DEEP
    ),
}  # fmt: skip
for _name, _preset in PRESETS.items():
    register_model_architecture("supermask_one_layer_transformer", f"supermask_one_layer_transformer_{_name}")(_preset)
# fairseq gives a model with a dataclass an architecture that checks nothing; ours refuses bad values before data is loaded.
ARCH_CONFIG_REGISTRY["supermask_one_layer_transformer"] = preset(transformer_legacy.base_architecture)

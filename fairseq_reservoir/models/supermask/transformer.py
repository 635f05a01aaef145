"""``--arch supermask_one_layer_transformer``: a Transformer of one random layer per stack, with a learned mask for every depth."""

from functools import partial

import torch
from fairseq.models import register_model
from fairseq.models.transformer import TransformerModelBase, transformer_legacy

from ...freezing.description import DescribedInCheckpoint
from ...options.for_fairseq.namespaces import as_namespace
from ...options.for_fairseq.presets import register, supermask_preset
from ...options.for_fairseq.transformer import STUDY, TINY, SupermaskTransformerConfig, as_transformer_config
from ...options.supermask_options import check_mask_options
from .build import build_embedding, description_flags, finish_supermask, mask_plans
from .inference import FoldsMasks
from .stacks import MaskedParts, SupermaskDecoder, SupermaskEncoder

DEPTHS = {"encoder": 6, "decoder": 6}


@register_model("supermask_one_layer_transformer", dataclass=SupermaskTransformerConfig)
class SupermaskOneLayerTransformer(DescribedInCheckpoint, FoldsMasks, TransformerModelBase):
    """Transformer with one random frozen layer per stack (encoder, decoder), which is applied L times with L learned masks.

    Every weight matrix of layer i is W * M_i, without biases. All layers of the stack share W, unless ``--mask-share none`` is
    given. The mask M_i keeps the weights with the largest learned scores. The scores are trained, and with ``--mask-layernorm
    affine`` also the LayerNorms. Source: Shen et al., 2021, "What's Hidden in a One-layer Randomly Weighted Transformer?".
    """

    description_flags = description_flags(DEPTHS)
    resume_flags = {"freeze": "--freeze"}

    @classmethod
    def add_args(cls, parser):
        super(TransformerModelBase, cls).add_args(parser)

    @classmethod
    @torch.inference_mode(False)
    def build_model(cls, cfg, task):
        """Build the model around one random layer per stack."""
        options = as_namespace(cfg)
        check_mask_options(options)
        plans = mask_plans(options, DEPTHS)
        config = as_transformer_config(options)
        config.encoder.layers, config.decoder.layers = options.encoder_layers, options.decoder_layers
        config.parts = {stack: MaskedParts(stack, options, plans[stack]) for stack in DEPTHS}
        # An iterator, because fairseq calls ``build_embedding`` in this order without naming the stack, and both stacks may have the same
        # dictionary and width.
        config.embeddings = iter(DEPTHS)
        return finish_supermask(super().build_model(config, task), plans, options)

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


preset = partial(supermask_preset, SupermaskTransformerConfig, DEPTHS)
_WIDE = {
    "encoder_embed_dim": 1024,
    "encoder_ffn_embed_dim": 2048,
    "decoder_embed_dim": 1024,
    "decoder_ffn_embed_dim": 2048,
}
_DEEP = {"encoder_layers": 12, "decoder_layers": 12}
PRESETS = {
    "tiny": preset(transformer_legacy.base_architecture, **TINY),
    "study": preset(transformer_legacy.base_architecture, **STUDY),
    "small_file": preset(  # measurements are in docs/the-smallest-file.md
        transformer_legacy.base_architecture, **STUDY, share_all_embeddings=True, mask_kind="signed", mask_keep_ratio=0.8,
        mask_coats="0.5,0.25,0.1",
    ),
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
           "encoder_attention_heads": 16, "decoder_attention_heads": 16,
           "attention_dropout": 0.1},  # as fairseq's transformer_wmt_en_de_big
    ),
    "deeper_wmt_en_de": preset(
        transformer_legacy.transformer_wmt_en_de, share_decoder_input_output_embed=True, **_DEEP
    ),
}  # fmt: skip
register("supermask_one_layer_transformer", PRESETS, preset(transformer_legacy.base_architecture))

"""``--arch supermask_one_layer_transformer_lm``: a language model of one random layer with a learned mask for every depth."""

from functools import partial

import torch
from fairseq.models import FairseqLanguageModel, register_model

from ...freezing.description import DescribedInCheckpoint
from ...options.for_fairseq.language_model import (
    DEPTHS,
    SIZES,
    SupermaskLanguageModelConfig,
    architecture,
    as_decoder_config,
)
from ...options.for_fairseq.namespaces import as_namespace
from ...options.for_fairseq.presets import register, supermask_preset
from ...options.supermask_options import check_mask_options
from ..token_embedding import token_embedding
from .build import build_embedding, description_flags, finish_supermask, mask_plans
from .inference import FoldsMasks
from .stacks import MaskedParts, SupermaskDecoder


@register_model("supermask_one_layer_transformer_lm", dataclass=SupermaskLanguageModelConfig)
class SupermaskOneLayerTransformerLM(DescribedInCheckpoint, FoldsMasks, FairseqLanguageModel):
    """fairseq's ``transformer_lm`` with one random frozen layer, applied L times with L learned masks.

    The model is ``supermask_one_layer_transformer`` without an encoder. It maps tokens (batch, time) to logits (batch, time, vocabulary).
    The scores are trained, and with ``--mask-layernorm affine`` also the LayerNorms. The paper has no language model (Shen et al., 2021,
    "What's Hidden in a One-layer Randomly Weighted Transformer?").
    """

    description_flags = description_flags(DEPTHS)
    resume_flags = {"freeze": "--freeze"}

    @classmethod
    @torch.inference_mode(False)
    def build_model(cls, cfg, task):
        """Build the model. All its layers share the weights of one random layer."""
        options = as_namespace(cfg)
        check_mask_options(options)
        plans = mask_plans(options, DEPTHS)
        config = as_decoder_config(options)
        config.decoder.layers = len(plans["decoder"])
        config.parts = {"decoder": MaskedParts("decoder", options, plans["decoder"])}
        embedding = token_embedding(config, task.source_dictionary, partial(build_embedding, "decoder"))
        decoder = SupermaskDecoder(
            config, task.target_dictionary, embedding, config.parts["decoder"], no_encoder_attn=True
        )
        return finish_supermask(cls(decoder), plans, options)


preset = partial(supermask_preset, SupermaskLanguageModelConfig, DEPTHS, architecture)
PRESETS = {name: preset(**sizes) for name, sizes in SIZES.items()}
register("supermask_one_layer_transformer_lm", PRESETS, preset())

"""``--arch reservoir_transformer``: a Transformer with frozen random layers."""

from functools import partial

from fairseq.models import register_model
from fairseq.models.transformer import TransformerModelBase, transformer_legacy

from ...checkpoint.pretrained_embeddings import start_from
from ...freezing.description import DescribedInCheckpoint
from ...freezing.reservoir_build import RESUME_FLAGS, description_flags, finish_reservoir
from ...options.for_fairseq.namespaces import as_namespace
from ...options.for_fairseq.presets import register, reservoir_preset
from ...options.for_fairseq.transformer import STUDY, TINY, ReservoirTransformerConfig, as_transformer_config
from ...options.plans import plans_of
from .stacks import ReservoirDecoder, ReservoirEncoder

DEPTHS = {"encoder": 6, "decoder": 6}


@register_model("reservoir_transformer", dataclass=ReservoirTransformerConfig)
class ReservoirTransformer(DescribedInCheckpoint, TransformerModelBase):
    """fairseq's Transformer for translation with a layer plan (Shen et al., 2021, "Reservoir Transformers").

    With a plan of only ``L``, the model equals fairseq's ``transformer`` bit for bit. ``slot_table`` lists all frozen parameters. Frozen
    parameters have no gradients and are never updated, but gradients flow through frozen layers to the layers below.
    """

    description_flags = description_flags(DEPTHS)
    resume_flags = RESUME_FLAGS

    @classmethod
    def add_args(cls, parser):
        super(TransformerModelBase, cls).add_args(parser)

    @classmethod
    def build_model(cls, cfg, task):
        """Build the model, freeze parameters according to its slot table, and draw its frozen random layers."""
        options = as_namespace(cfg)
        plans = plans_of(options, DEPTHS)
        config = as_transformer_config(options)
        config.plans = plans
        return finish_reservoir(super().build_model(config, task), plans, options)

    @classmethod
    def build_embedding(cls, cfg, dictionary, embed_dim, path=None):
        embedding = super().build_embedding(cfg, dictionary, embed_dim)
        start_from(
            embedding, path, dictionary, f"--{'encoder' if path == cfg.encoder.embed_path else 'decoder'}-embed-path"
        )
        return embedding

    @classmethod
    def build_encoder(cls, cfg, src_dict, embed_tokens):
        return ReservoirEncoder(cfg, src_dict, embed_tokens, cfg.plans.built["encoder"])

    @classmethod
    def build_decoder(cls, cfg, tgt_dict, embed_tokens):
        return ReservoirDecoder(
            cfg, tgt_dict, embed_tokens, cfg.plans.built["decoder"], no_encoder_attn=cfg.no_cross_attention
        )


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

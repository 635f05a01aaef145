"""``--arch reservoir_transformer_lm``: a language model with frozen random layers."""

from functools import partial

from fairseq.models import FairseqLanguageModel, register_model
from fairseq.models.transformer import TransformerModelBase

from ...checkpoint.pretrained_embeddings import start_from
from ...freezing.description import DescribedInCheckpoint
from ...freezing.reservoir_build import RESUME_FLAGS, description_flags, finish_reservoir
from ...options.for_fairseq.language_model import (
    DEPTHS,
    SIZES,
    ReservoirLanguageModelConfig,
    architecture,
    as_decoder_config,
)
from ...options.for_fairseq.namespaces import as_namespace
from ...options.for_fairseq.presets import register, reservoir_preset
from ...options.plans import plans_of
from ..token_embedding import token_embedding
from .stacks import ReservoirDecoder


@register_model("reservoir_transformer_lm", dataclass=ReservoirLanguageModelConfig)
class ReservoirTransformerLM(DescribedInCheckpoint, FairseqLanguageModel):
    """fairseq's ``transformer_lm`` with a layer plan; tokens: (batch, time), logits: (batch, time, vocabulary).

    With a plan of only ``L``, the model equals fairseq's ``--arch transformer_lm_big`` of the same sizes bit for bit. Both have LayerNorms
    before the blocks and a final LayerNorm, unlike ``transformer_lm``. The layers are the decoder layers of ``reservoir_transformer``
    without attention to a source. Therefore frozen layers other than S have no trained parameters except the gain of ``--rezero``. M is
    not allowed, because it would read later tokens.
    """

    description_flags = description_flags(DEPTHS)
    resume_flags = RESUME_FLAGS

    @classmethod
    def build_model(cls, cfg, task):
        """Build the model, freeze parameters according to its slot table, and draw its frozen random layers."""
        options = as_namespace(cfg)
        plans = plans_of(options, DEPTHS)
        slots, config = plans.built["decoder"], as_decoder_config(options)
        config.decoder.layers = len(slots)
        embedding = token_embedding(config, task.source_dictionary, _embedding)
        decoder = ReservoirDecoder(config, task.target_dictionary, embedding, slots, no_encoder_attn=True)
        return finish_reservoir(cls(decoder), plans, options)


def _embedding(config, dictionary, width, path):
    embedding = TransformerModelBase.build_embedding(config, dictionary, width)
    start_from(embedding, path, dictionary, "--decoder-embed-path")
    return embedding


preset = partial(reservoir_preset, ReservoirLanguageModelConfig, DEPTHS, architecture)
PRESETS = {
    **{name: preset(**sizes) for name, sizes in SIZES.items()},
    # Character model with the sizes of Transformer-XL's recipe for enwik8 (run_enwik8_base.sh) and fairseq's positions.
    "enwik8": preset(**{**SIZES["base"], "decoder_layers": 12}),
}
register("reservoir_transformer_lm", PRESETS, preset())

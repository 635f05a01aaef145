"""``--arch reservoir_transformer_lm``: a language model some of whose layers are random and never trained."""

from functools import partial

from fairseq.models import FairseqLanguageModel, register_model
from fairseq.models.transformer import TransformerModelBase

from ...checkpoint.pretrained_embeddings import start_from
from ...freezing.description import DescribedInCheckpoint
from ...freezing.reservoir_build import RESUME_FLAGS, description_flags, finish_reservoir
from ...options.language_model_options import (
    DEPTHS,
    SIZES,
    ReservoirLanguageModelConfig,
    architecture,
    as_decoder_config,
)
from ...options.plans import plans_of
from ...options.presets import register, reservoir_preset
from ...options.transformer_options import as_namespace
from ..token_embedding import token_embedding
from .stacks import ReservoirDecoder


@register_model("reservoir_transformer_lm", dataclass=ReservoirLanguageModelConfig)
class ReservoirTransformerLM(DescribedInCheckpoint, FairseqLanguageModel):
    """fairseq's ``transformer_lm`` with a layer plan: tokens (batch, time) to logits (batch, time, words).

    A plan of only ``L`` equals fairseq's ``--arch transformer_lm_big`` of the same sizes bit for bit. ``--arch transformer_lm`` is
    another model: it has its LayerNorms behind the blocks and no last one. T, F, f, C and c are as in the decoder of
    ``reservoir_transformer``, but no layer attends to a source, so that of a capital letter nothing is trained. G would
    read the words it has yet to predict.
    """

    description_flags = description_flags(DEPTHS)
    resume_flags = RESUME_FLAGS

    @classmethod
    def build_model(cls, cfg, task):
        """Builds the model, freezes what its slot table freezes and fills in the reservoirs.

        Raises:
            InputError: the options contradict each other; the message names the flag.
        """
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
    # A character model of the sizes in Transformer-XL's recipe for enwik8 (run_enwik8_base.sh), with fairseq's positions.
    "enwik8": preset(**{**SIZES["base"], "decoder_layers": 12}),
}
register("reservoir_transformer_lm", PRESETS, preset())

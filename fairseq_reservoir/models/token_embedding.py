"""Token embedding of a language model."""

from fairseq import utils
from fairseq.models.transformer import TransformerConfig
from fairseq.modules import AdaptiveInput


def token_embedding(config: TransformerConfig, dictionary, build_embedding):
    """Build fairseq's adaptive input if ``--adaptive-input`` is given. Otherwise call ``build_embedding``."""
    if not config.adaptive_input:
        return build_embedding(config, dictionary, config.decoder.input_dim, config.decoder_embed_path)
    return AdaptiveInput(
        len(dictionary),
        dictionary.pad(),
        config.decoder.input_dim,
        config.adaptive_input_factor,
        config.decoder.embed_dim,
        utils.eval_str_list(config.adaptive_input_cutoff, type=int),
        config.quant_noise.pq,
        config.quant_noise.pq_block_size,
    )

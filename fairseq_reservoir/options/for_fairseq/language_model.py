"""The flags of our language models, their checks and the sizes of their presets."""

from argparse import Namespace
from dataclasses import dataclass
from typing import Optional

from fairseq.dataclass import FairseqDataclass
from fairseq.models.transformer import TransformerConfig
from fairseq.models.transformer_lm import (
    DEFAULT_MAX_TARGET_POSITIONS,
    TransformerLanguageModelConfig,
    base_lm_architecture,
)

from ...errors import InputError
from ..fairseq_flags import PositionFlags
from ..flags import option
from ..layer_options import DecoderPlanOptions, FrozenLayerOptions
from ..number_rules import refuse
from ..reading import read
from ..supermask_options import MaskOptions
from ..vector_options import WordVectorOptions
from .transformer import as_transformer_config

DEPTHS = {"decoder": 6}
# ``large`` has the sizes of fairseq's transformer_lm_big. ``base`` has the sizes of transformer_lm, but shares input and output
# embeddings. Its LayerNorms are before the blocks, as in transformer_lm_big. ``tiny`` and ``study`` are ours.
SIZES = {
    name: {
        "decoder_embed_dim": width,
        "decoder_ffn_embed_dim": ffn_width,
        "decoder_layers": layers,
        "decoder_attention_heads": heads,
        "share_decoder_input_output_embed": tied,
    }
    for name, width, ffn_width, layers, heads, tied in (
        ("tiny", 64, 128, 2, 2, False),
        ("study", 128, 512, 3, 4, True),
        ("base", 512, 2048, 6, 8, True),
        ("large", 1024, 4096, 12, 16, False),
    )
}


@dataclass
class LanguageModelConfig(TransformerLanguageModelConfig, WordVectorOptions, FairseqDataclass):
    """fairseq's options of ``transformer_lm``, plus ``--decoder-embed-path``. The defaults are those of fairseq's command line."""

    decoder_input_dim: int = option(
        "${model.decoder_embed_dim}", "width of the embedding. Default: --decoder-embed-dim", "N"
    )
    decoder_output_dim: int = option(
        "${model.decoder_embed_dim}", "width before the output projection. Default: --decoder-embed-dim", "N"
    )
    decoder_normalize_before: bool = option(
        True, "LayerNorm before each decoder block. The command line always sets this flag"
    )


@dataclass
class ReservoirLanguageModelConfig(LanguageModelConfig, FrozenLayerOptions, DecoderPlanOptions, FairseqDataclass):
    """Options of ``reservoir_transformer_lm``."""

    decoder_layers: Optional[int] = option(
        None, "number of layers. Default: the number in --reservoir-decoder, or 6", "N"
    )


@dataclass
class SupermaskLanguageModelConfig(LanguageModelConfig, MaskOptions, FairseqDataclass):
    """Options of ``supermask_one_layer_transformer_lm``."""


def architecture(args) -> None:
    """Complete the options with fairseq's architecture function of ``transformer_lm``, and check them."""
    base_lm_architecture(args)
    args.decoder_embed_path = read(WordVectorOptions, args).decoder_embed_path
    check_language_model(args)


def check_language_model(options: Namespace) -> None:
    """Refuse options that our language models do not support."""
    found = []
    if options.character_embeddings:
        found.append("--character-embeddings: not supported in models with a layer plan or masks; remove the flag")
    widths = options.decoder_input_dim, options.decoder_output_dim
    if options.share_decoder_input_output_embed and widths[0] != widths[1]:
        found.append(
            f"--share-decoder-input-output-embed: needs equal values of --decoder-input-dim ({widths[0]}) and --decoder-output-dim "
            f"({widths[1]})"
        )
    if options.adaptive_input and not options.adaptive_input_cutoff:
        found.append("--adaptive-input: needs --adaptive-input-cutoff, such as 20000,60000")
    if options.adaptive_input and options.decoder_embed_path:
        found.append(
            "--decoder-embed-path: the file has one table, but --adaptive-input makes several; remove one of these flags"
        )
    for name, at_input, at_output in (
        ("cutoff", options.adaptive_input_cutoff, options.adaptive_softmax_cutoff),
        ("factor", options.adaptive_input_factor, options.adaptive_softmax_factor),
    ):
        if options.tie_adaptive_weights and (not options.adaptive_input or at_input != at_output):
            found.append(
                f"--tie-adaptive-weights: needs --adaptive-input, and --adaptive-input-{name} ({at_input}) must equal "
                f"--adaptive-softmax-{name} ({at_output})"
            )
            break
    refuse(found)


def as_decoder_config(options: Namespace) -> TransformerConfig:
    """Return fairseq's nested configuration of a language model's decoder, with our flags as further attributes.

    Raises:
        InputError: ``check_language_model`` refuses the options, or an ordinary output projection is tied to an adaptive input.
    """
    check_language_model(options)
    tied = options.share_decoder_input_output_embed and not options.adaptive_softmax_cutoff
    if options.adaptive_input and tied:
        raise InputError(
            "--adaptive-input: makes several embedding tables, but the output projection has one table and is tied to the input, as in the "
            "presets 'study' and 'base'; also give --adaptive-softmax-cutoff"
        )
    config = as_transformer_config(options)
    flags = read(PositionFlags, options)
    config.max_target_positions = flags.max_target_positions or flags.tokens_per_sample or DEFAULT_MAX_TARGET_POSITIONS
    config.checkpoint_activations = options.checkpoint_activations or options.offload_activations
    return config

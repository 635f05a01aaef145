"""Check whether captured steps support a model and its search settings. If not, fairseq's own generator is used."""

from typing import Any

import torch
from fairseq import search
from fairseq.models.fairseq_decoder import FairseqDecoder
from fairseq.models.fairseq_model import BaseFairseqModel
from fairseq.models.transformer import TransformerDecoderBase, TransformerModelBase
from fairseq.modules import LearnedPositionalEmbedding, MultiheadAttention, SinusoidalPositionalEmbedding
from fairseq.modules.fairseq_dropout import FairseqDropout
from fairseq.modules.transformer_layer import TransformerDecoderLayerBase
from torch import nn

from ...layers.adapters.adapted_attention import AdaptedAttention
from ...layers.adapters.adapted_linear import AdaptedLinear
from ...layers.base import DecoderSlot
from ...layers.cross_attention import CrossAttention
from ...layers.feed_forward import FeedForward
from .decoder_step import position_count

_DECODER_METHODS = ("forward", "extract_features_scriptable", "output_layer", "get_normalized_probs_scriptable")
_NORMALIZERS = (BaseFairseqModel.get_normalized_probs, TransformerModelBase.get_normalized_probs)


def unsupported_search(generator: Any) -> str | None:
    """Return why the search of a ``SequenceGenerator`` is not supported; None if it is supported."""
    if generator.model.models_size != 1:
        return "several models"
    if type(generator.search) is not search.BeamSearch:
        return f"the search is {type(generator.search).__name__}"
    if generator.lm_model is not None:
        return "a language model is added to the scores"
    if generator.repeat_ngram_blocker is not None:
        return "--no-repeat-ngram-size"
    if generator.match_source_len:
        return "--match-source-len"
    # A search needs 2 beam_size candidates with a finite score at the first step.
    never = {generator.pad, generator.eos, *_suppressed(generator)}
    if generator.vocab_size - len(never) < 2 * generator.beam_size:
        return f"the dictionary has only {generator.vocab_size} entries for a beam of {generator.beam_size}"
    return None


def _suppressed(generator: Any) -> list[int]:
    """Return the tokens that the search never chooses: ``tokens_to_suppress``, and <unk> if ``unk_penalty`` is infinite."""
    suppressed = generator.token_indices_to_suppress
    unknown = [generator.unk] if generator.unk_penalty == torch.inf else []
    return unknown if suppressed is None else [*unknown, *suppressed.tolist()]


def unsupported_model(model: Any) -> str | None:
    """Return why ``DecoderStep`` does not support a model; None if it supports the model."""
    if not isinstance(model, TransformerModelBase):
        return f"{type(model).__name__} is not a Transformer of fairseq"
    if not any(type(model).get_normalized_probs is method for method in _NORMALIZERS):
        return f"{type(model).__name__} has its own get_normalized_probs"
    return _unsupported_decoder(model.decoder)


def _unsupported_decoder(decoder: Any) -> str | None:
    for name in _DECODER_METHODS:
        if not _is_method_of((TransformerDecoderBase, FairseqDecoder), decoder, name):
            return f"{type(decoder).__name__} has its own {name}"
    if not _is_method_of((TransformerDecoderBase,), decoder, "extract_features") and not getattr(
        type(decoder), "features_as_fairseq", False
    ):
        return f"{type(decoder).__name__} has its own extract_features"
    for name, module in decoder.named_modules():
        if module._forward_hooks or module._forward_pre_hooks or "forward" in vars(module):
            return f"decoder.{name} has a hook or a changed forward pass"
        if isinstance(module, FairseqDropout) and module.apply_during_inference:
            return "--retain-dropout"
    unusual = {
        "adaptive softmax": decoder.adaptive_softmax,
        "quantization noise": decoder.quant_noise,
        "--cross-self-attention": decoder.cross_self_attention,
    }
    for what, given in unusual.items():
        if given:
            return what
    return _unsupported_embedding(decoder) or next(
        filter(None, map(_unsupported_layer, decoder.layers.children())), None
    )


def unsupported_length(decoder: Any, steps: int) -> str | None:
    """Return a reason if fairseq would enlarge the table of positions or raise an error at this number of steps, else None."""
    if decoder.embed_positions is not None and steps > position_count(decoder.embed_positions):
        return f"a translation of {steps} tokens is longer than the table of positions"
    return None


def _unsupported_embedding(decoder: Any) -> str | None:
    table, positions, output = decoder.embed_tokens, decoder.embed_positions, decoder.output_projection
    if type(table) is not nn.Embedding or table.max_norm is not None:
        return f"the embedding is {type(table).__name__}"
    if positions is not None and type(positions) not in (SinusoidalPositionalEmbedding, LearnedPositionalEmbedding):
        return f"positions are {type(positions).__name__}"
    if positions is not None and positions.padding_idx is None:
        return "positions have no padding index"
    is_tied = getattr(type(output), "is_product", False) and getattr(output, "embedding", None) is table
    if not is_tied and not _is_linear(output):
        return f"the output projection is {type(output).__name__}"
    return None


def _unsupported_layer(layer: Any) -> str | None:
    name = type(layer).__name__
    if getattr(layer, "rezero_gain", None) is not None:
        return "--rezero"
    if type(layer) is DecoderSlot:
        for part in layer.children():
            if type(part) not in (FeedForward, CrossAttention):
                return f"a layer contains {type(part).__name__}"
            if isinstance(part, CrossAttention) and not _is_usual_attention(part.encoder_attn, to_source=True):
                return "unusual attention"
        return None
    if not isinstance(layer, TransformerDecoderLayerBase):
        return f"a layer is {name}"
    for method in ("forward", "residual_connection"):
        if not _is_method_of((TransformerDecoderLayerBase,), layer, method):
            return f"{name} has its own {method}"
    if any(part is not None for part in (layer.attn_ln, layer.c_attn, layer.ffn_layernorm, layer.w_resid)):
        return "--scale-attn, --scale-fc, --scale-heads or --scale-resids"
    if not _is_usual_attention(layer.self_attn, to_source=False) or not (
        layer.encoder_attn is None or _is_usual_attention(layer.encoder_attn, to_source=True)
    ):
        return f"{name} has unusual attention"
    if not _is_linear(layer.fc1) or not _is_linear(layer.fc2):
        return f"{name} has a {type(layer.fc1).__name__}"
    return None


def _is_usual_attention(attention: Any, to_source: bool) -> bool:
    projections = ("q_proj", "k_proj", "v_proj", "out_proj")
    return (
        isinstance(attention, MultiheadAttention)
        and _is_method_of((MultiheadAttention, AdaptedAttention), attention, "forward")
        and _is_method_of((MultiheadAttention,), attention, "apply_sparse_mask")
        and bool(attention.encoder_decoder_attention if to_source else attention.self_attention)
        and attention.bias_k is None
        and not attention.add_zero_attn
        and all(_is_linear(getattr(attention, name)) for name in projections)
    )


def _is_linear(module: Any) -> bool:
    return type(module) in (nn.Linear, nn.modules.linear.NonDynamicallyQuantizableLinear, AdaptedLinear)


def _is_method_of(classes: tuple[type, ...], thing: Any, name: str) -> bool:
    """Whether an object has the method ``name`` of one of the classes, and no subclass has overridden this method."""
    return any(getattr(type(thing), name) is getattr(one, name, None) for one in classes)

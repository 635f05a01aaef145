"""fairseq's encoder and decoder with the layers of a layer plan."""

from typing import Dict, List, Optional

from fairseq.distributed import fsdp_wrap
from fairseq.models.transformer import TransformerDecoderBase, TransformerEncoderBase
from fairseq.modules.checkpoint_activations import checkpoint_wrapper
from fairseq.modules.fairseq_dropout import FairseqDropout
from torch import Tensor

from ...layers import SlotConfig, build_slot
from ...layers.own_kind_trial import build_own
from ...layers.rezero import LAYERS, use_rezero
from ...options.layer_options import FrozenLayerOptions, kernel_sizes
from ...options.reading import read


class _PlannedStack:
    """Mix-in for encoder and decoder: one layer for each of ``slots``."""

    def __init__(self, cfg, dictionary, embed_tokens, slots, **kwargs):
        # An iterator, because fairseq's constructor passes no layer number and fills ``layers`` only after it has built all layers. Layers
        # that are built after the constructor would be drawn after the output projection, which would change the initial values of every
        # model.
        self.upcoming = iter(slots)
        super().__init__(cfg, dictionary, embed_tokens, **kwargs)
        del self.upcoming
        if _has_rezero(cfg):
            self.layer_norm = None  # a pre-norm stack of fairseq has a LayerNorm after its last layer

    def next_layer(self, stack, build, cfg, *no_encoder_attn):
        """Build the layer of the next slot. Without ``--rezero``, fairseq's own layers are built by ``build``."""
        slot = next(self.upcoming)
        if not slot.kind.fairseqs or _has_rezero(cfg):
            return _reservoir_layer(slot, stack, cfg, *no_encoder_attn)
        return _apply_no_dropout(build(cfg, *no_encoder_attn), slot, cfg)


class ReservoirEncoder(_PlannedStack, TransformerEncoderBase):
    """fairseq's Transformer encoder with one layer for each of ``slots``."""

    def build_encoder_layer(self, cfg):
        return self.next_layer("encoder", super().build_encoder_layer, cfg)


class ReservoirDecoder(_PlannedStack, TransformerDecoderBase):
    """fairseq's Transformer decoder with one layer for each of ``slots``."""

    # --cuda-graphs may use its own ``extract_features``, because ours differs from fairseq's only in the alignments.
    features_as_fairseq = True

    def __init__(self, cfg, dictionary, embed_tokens, slots, **kwargs):
        super().__init__(cfg, dictionary, embed_tokens, slots, **kwargs)
        self.last_attending = max((place for place, slot in enumerate(slots) if slot.kind.sees_source), default=None)

    def build_decoder_layer(self, cfg, no_encoder_attn=False):
        return self.next_layer("decoder", super().build_decoder_layer, cfg, no_encoder_attn)

    def extract_features(
        self,
        prev_output_tokens,
        encoder_out: Optional[Dict[str, List[Tensor]]],
        incremental_state: Optional[Dict[str, Dict[str, Optional[Tensor]]]] = None,
        full_context_alignment: bool = False,
        alignment_layer: Optional[int] = None,
        alignment_heads: Optional[int] = None,
    ):
        """Compute features. Alignments come from the last layer that attends to the source.

        fairseq takes alignments from the last layer, even if this layer does not attend to the source.
        """
        if alignment_layer is None:
            alignment_layer = self.last_attending
        return self.extract_features_scriptable(
            prev_output_tokens, encoder_out, incremental_state, full_context_alignment, alignment_layer, alignment_heads
        )


def _has_rezero(cfg):
    return read(FrozenLayerOptions, cfg).rezero


def _reservoir_layer(slot, stack, cfg, *no_encoder_attn):
    """Build a layer of this package, a user-defined layer or a layer with a gain, wrapped as fairseq wraps its layers."""
    layer = (
        LAYERS[stack](cfg, *no_encoder_attn) if slot.kind.fairseqs else _slot_layer(slot, stack, cfg, *no_encoder_attn)
    )
    layer = _apply_no_dropout(layer, slot, cfg)
    if cfg.checkpoint_activations:
        layer = checkpoint_wrapper(layer, offload_to_cpu=cfg.offload_activations)
    return fsdp_wrap(layer, min_num_params=0 if cfg.checkpoint_activations else cfg.min_params_to_wrap)


def _slot_layer(slot, stack, cfg, no_encoder_attn=False):
    config = _slot_config(slot, stack, cfg, no_encoder_attn)
    layer = (
        build_own(slot.kind, stack, config) if slot.kind.registered_by else build_slot(slot.kind.letter, stack, config)
    )
    if _has_rezero(cfg):
        use_rezero(layer)
    return layer


def _slot_config(slot, stack, cfg, no_encoder_attn):
    sizes = cfg.encoder if stack == "encoder" else cfg.decoder
    norm_first = cfg.reservoir_norm == "paper" and slot.kind.own_norm
    return SlotConfig(
        embed_dim=sizes.embed_dim,
        ffn_dim=sizes.ffn_embed_dim,
        heads=sizes.attention_heads,
        depth=slot.origin,
        memory_dim=0 if no_encoder_attn else cfg.encoder.embed_dim,
        dropout=cfg.dropout,
        attention_dropout=cfg.attention_dropout,
        activation_dropout=cfg.activation_dropout or cfg.relu_dropout or 0.0,
        activation_fn=str(cfg.activation_fn),
        norm_first=norm_first or sizes.normalize_before,
        kernel_sizes=kernel_sizes(cfg.reservoir_kernel_sizes),
        max_positions=cfg.max_source_positions if stack == "encoder" else cfg.max_target_positions,
    )


def _apply_no_dropout(layer, slot, cfg):
    """Disable dropout in a frozen layer (``--reservoir-no-dropout``), except in its trained cross-attention."""
    if slot.frozen and cfg.reservoir_no_dropout:
        for name, module in layer.named_modules():
            if isinstance(module, FairseqDropout) and not name.startswith("cross."):
                module.p = 0.0
    return layer

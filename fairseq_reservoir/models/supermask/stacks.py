"""fairseq's encoder and decoder with one random layer each. The layer is applied at every depth with the mask of that depth."""

import math
from argparse import Namespace
from collections.abc import Callable
from typing import Any

from fairseq.models.transformer import TransformerDecoderBase, TransformerEncoderBase
from fairseq.modules import MultiheadAttention
from fairseq.modules.checkpoint_activations import checkpoint_wrapper
from fairseq.modules.transformer_layer import TransformerDecoderLayerBase, TransformerEncoderLayerBase
from torch import nn

from ...masks.levels import Levels
from ...masks.masked_embedding import MaskedEmbedding, TiedProjection
from ...masks.masked_linear import MaskedLinear
from ...masks.masked_weight import weight_recipe
from ...masks.rounded_weight import RoundedEmbedding, RoundedLinear, SharedLinear
from ...options.supermask_options import UNSCALED, embedding_levels, mask_choices, whole_embeddings
from ...plan.freeze_spec import SHARED_LAYER
from ...plan.layer_plan import Slot
from ...plan.mask_choices import MaskChoices
from ...random_tensors.recipe import Recipe

_TOKEN_TABLES = ("embed_tokens", "output_projection")
# Standard deviation of the weights that fairseq's init_bert_params draws.
BERT_STD = 0.02
# Rounded counterparts of masked modules, for trained weights.
_ROUNDED = {MaskedLinear: RoundedLinear, MaskedEmbedding: RoundedEmbedding}


class RandomLayer(nn.Module):
    """Random frozen weights that all layers of a stack share, one buffer per matrix. ``recipes`` contains the recipe of each buffer."""

    def __init__(self):
        super().__init__()
        self.recipes = {}

    def add(self, buffer: str, recipe: Recipe, seed: int) -> None:
        """Add a buffer and draw its values."""
        self.recipes[buffer] = recipe
        self.register_buffer(buffer, recipe.draw(seed))


class SharedLayer(nn.Module):
    """Trained rounded matrices that all layers of a stack share. They have the same names as the matrices of a layer."""

    def linear(self, part: str, make: Callable[[], RoundedLinear]) -> SharedLinear:
        """Return a reference to the matrix ``part``. The first call creates the matrix with ``make``."""
        place, _, name = part.rpartition(".")
        if place and not hasattr(self, place):
            self.add_module(place, nn.Module())
        parent: Any = self.get_submodule(place)
        if not hasattr(parent, name):
            parent.add_module(name, make())
        return SharedLinear(getattr(parent, name))


class MaskedParts:
    """Factory of the masked matrices of one stack. A part is a matrix of a layer, such as ``fc1``.

    By default, all layers share one random matrix for each part, and each layer has its own mask. With ``--mask-share none``,
    each layer also has its own random matrix. With ``--mask-trained-weights``, matrices are trained and rounded instead of random
    and masked. ``--mask-embeddings`` can set other levels for the embedding and the output projection.

    Args:
        stack: ``encoder`` or ``decoder``.
        options: the model's complete options.
        slots: the layers of the stack.
        of_bert: whether the model is a RoBERTa. The paper's code initialises a RoBERTa differently, with ``init_bert_params``.
    """

    def __init__(self, stack: str, options: Namespace, slots: tuple[Slot, ...], of_bert: bool = False):
        self.stack, self.options, self.depth, self.of_bert = stack, options, None, of_bert
        self.slots = iter(slots)
        self.choices = mask_choices(options)
        self.random_layer = RandomLayer()
        self.levels = Levels(options.mask_trained_weights) if options.mask_trained_weights else None
        self.embedding_levels = Levels(levels) if (levels := embedding_levels(options)) else None
        self.shared_layer = SharedLayer()

    def linear(self, part: str, in_features: int, out_features: int) -> MaskedLinear | RoundedLinear | SharedLinear:
        """Create the masked matrix ``part`` of the layer that is being built."""
        if self.levels:
            return self.rounded_linear(part, in_features, out_features)
        shared = None
        if self.options.mask_share == "layer":
            buffer = part.replace(".", "_")
            if not hasattr(self.random_layer, buffer):
                recipe = self.recipe(f"random_layer.{buffer}", part, (out_features, in_features))
                self.random_layer.add(buffer, recipe, self.options.mask_seed)
            shared = (self.random_layer, buffer)
        return self.make(MaskedLinear, (in_features, out_features), f"layers.{self.depth}.{part}", part, shared=shared)

    def rounded_linear(self, part: str, *sizes: int) -> RoundedLinear | SharedLinear:
        """Create the rounded matrix ``part`` of the layer that is being built."""
        if self.options.mask_share == "none":
            return self.make(MaskedLinear, sizes, f"layers.{self.depth}.{part}", part)
        return self.shared_layer.linear(part, lambda: self.make(MaskedLinear, sizes, f"{SHARED_LAYER}.{part}", part))

    def make(self, kind, sizes, place, part, **options):
        """Create a masked module at ``place`` of this stack, with the random distribution of ``part``.

        If the weights are trained, create the layer that rounds its weights in place of ``kind``. Its initial values are uniform, with
        the standard deviation of fairseq's initial values.
        """
        seeded = {"seed": self.options.mask_seed, "name": f"{self.stack}.{place}"}
        levels = self.embedding_levels if part in _TOKEN_TABLES else self.levels
        if levels:
            gain = _size_in_fairseq(part) / 2**0.5  # kaiming_uniform has a deviation of sqrt(2 / fan_in)
            return _ROUNDED[kind](*sizes, levels, init="kaiming_uniform", gain=gain, **seeded)
        init, gain = self.drawn_as(part, fan_in=sizes[1] if kind is MaskedEmbedding else sizes[0])
        options["row_gain"] = self.options.mask_row_gain
        return kind(*sizes, init=init, gain=gain, **seeded, **self.choices, **options)

    def recipe(self, place, part, shape):
        """Return the recipe of the random matrix at ``place`` of this stack, with the random distribution of ``part``."""
        init, gain = self.drawn_as(part, fan_in=shape[1])
        return weight_recipe(shape, MaskChoices(**self.choices), init, gain, f"{self.stack}.{place}")

    def drawn_as(self, part, fan_in):
        """Return (initialiser, gain) of a part. A gain of None means sqrt(1 / keep ratio)."""
        init = self.options.mask_init_weights
        if init == "signed_fairseq":
            return "signed_constant", _size_in_fairseq(part) / 2**0.5 * MaskChoices(**self.choices).gain
        if init.endswith(UNSCALED):
            return init.removesuffix(UNSCALED), 1.0
        if init != "paper_code":
            return init, None
        if self.of_bert:
            # The paper's code calls init_bert_params last, so every matrix is N(0, 0.02^2) without scaling.
            return "kaiming_normal", BERT_STD / math.sqrt(2 / fan_in)
        return paper_code(part)


def paper_code(part: str) -> tuple[str, float]:
    """Return the (initialiser, gain) that the paper's code uses for a part of a translation model.

    The code does not scale weights by the keep ratio. After building the masks, it initialises the attention matrices again.
    """
    if part.endswith(("q_proj", "k_proj", "v_proj")):
        return "xavier_uniform", 2**-0.5
    return ("xavier_uniform", 1.0) if part.endswith("out_proj") else ("kaiming_uniform", 1.0)


def _size_in_fairseq(part):
    """Return the standard deviation of a trained matrix's initial values in fairseq, times sqrt(fan_in).

    Attention matrices are treated as square. Attention is Xavier uniform, with a gain of sqrt(1/2) for q, k and v. Feed-forward matrices
    have torch's default, U(-1/sqrt(fan_in), 1/sqrt(fan_in)). Embeddings and output projections are N(0, 1 / width).
    """
    if part.endswith(("q_proj", "k_proj", "v_proj")):
        return 2**-0.5
    return 3**-0.5 if part.endswith(("fc1", "fc2")) else 1.0


class MaskedAttention(MultiheadAttention):
    """fairseq's attention with masked projections. Fused attention uses the projections' masked ``weight`` and zero ``bias``."""

    def __init__(self, parts: MaskedParts, name: str, embed_dim: int, num_heads: int, **options):
        super().__init__(embed_dim, num_heads, **options)
        for projection, width in (
            ("q_proj", embed_dim),
            ("k_proj", self.kdim),
            ("v_proj", self.vdim),
            ("out_proj", embed_dim),
        ):
            setattr(self, projection, parts.linear(f"{name}.{projection}", width, embed_dim))

    def reset_parameters(self):
        """Do nothing, because fairseq's projections are replaced."""


class _MaskedLayer:
    """Mix-in that masks the matrices of fairseq's layers."""

    def __init__(self, cfg, parts, *args):
        self.parts = parts
        super().__init__(cfg, *args)
        del self.parts

    def build_fc1(self, input_dim, output_dim, q_noise, qn_block_size):
        return self.parts.linear("fc1", input_dim, output_dim)

    def build_fc2(self, input_dim, output_dim, q_noise, qn_block_size):
        return self.parts.linear("fc2", input_dim, output_dim)


class MaskedEncoderLayer(_MaskedLayer, TransformerEncoderLayerBase):
    def build_self_attention(self, embed_dim, cfg):
        heads, dropout = cfg.encoder.attention_heads, cfg.attention_dropout
        return MaskedAttention(self.parts, "self_attn", embed_dim, heads, dropout=dropout, self_attention=True)


class MaskedDecoderLayer(_MaskedLayer, TransformerDecoderLayerBase):
    def build_self_attention(self, embed_dim, cfg, add_bias_kv=False, add_zero_attn=False):
        heads, alone = cfg.decoder.attention_heads, not cfg.cross_self_attention
        return MaskedAttention(
            self.parts, "self_attn", embed_dim, heads, dropout=cfg.attention_dropout, self_attention=alone
        )

    def build_encoder_attention(self, embed_dim, cfg):
        return MaskedAttention(
            self.parts,
            "encoder_attn",
            embed_dim,
            cfg.decoder.attention_heads,
            kdim=cfg.encoder.embed_dim,
            vdim=cfg.encoder.embed_dim,
            dropout=cfg.attention_dropout,
            encoder_decoder_attention=True,
        )


class _MaskedStack:
    """Mix-in for encoder and decoder. It builds the layers in order, and registers the random layer."""

    def __init__(self, cfg, dictionary, embed_tokens, parts, **kwargs):
        self.parts = parts
        super().__init__(cfg, dictionary, embed_tokens, **kwargs)
        del self.parts
        self.random_layer = parts.random_layer
        if parts.levels:
            setattr(self, SHARED_LAYER, parts.shared_layer)

    def next_layer(self, layer_class, cfg, *args):
        # An iterator, because fairseq passes no layer number to ``build_*_layer`` and fills ``layers`` only after it has built all layers.
        self.parts.depth = next(self.parts.slots).origin
        layer = layer_class(cfg, self.parts, *args)
        return (
            checkpoint_wrapper(layer, offload_to_cpu=cfg.offload_activations) if cfg.checkpoint_activations else layer
        )


class SupermaskEncoder(_MaskedStack, TransformerEncoderBase):
    def build_encoder_layer(self, cfg):
        return self.next_layer(MaskedEncoderLayer, cfg)


class SupermaskDecoder(_MaskedStack, TransformerDecoderBase):
    def build_decoder_layer(self, cfg, no_encoder_attn=False):
        return self.next_layer(MaskedDecoderLayer, cfg, no_encoder_attn)

    def build_output_projection(self, cfg, dictionary, embed_tokens):
        if whole_embeddings(cfg) or cfg.adaptive_softmax_cutoff is not None:
            super().build_output_projection(cfg, dictionary, embed_tokens)
        elif self.share_input_output_embed:
            self.output_projection = TiedProjection(embed_tokens)
        else:
            sizes = (self.output_embed_dim, len(dictionary))
            self.output_projection = self.parts.make(MaskedLinear, sizes, "output_projection", "output_projection")


def masked_embedding(parts: MaskedParts, dictionary, embed_dim: int) -> MaskedEmbedding | RoundedEmbedding:
    """Create the masked or rounded token embedding of a stack."""
    sizes = (len(dictionary), embed_dim, dictionary.pad())
    return parts.make(MaskedEmbedding, sizes, "embed_tokens", "embed_tokens")

"""Trained attention to the source, for decoder layers with frozen token mixing."""

from typing import Any

from fairseq.modules import MultiheadAttention
from torch import Tensor

from .base import Context, SlotConfig, Sublayer


class CrossAttention(Sublayer):
    """Attention to the source: f(x) = MultiheadAttention(queries from x, keys and values from the encoder's output).

    In generation, projected keys and values are cached, as in fairseq's decoder layers.
    """

    reads_source = True

    def __init__(self, config: SlotConfig) -> None:
        super().__init__(config)
        self.encoder_attn = MultiheadAttention(
            config.embed_dim,
            config.heads,
            kdim=config.memory_dim,
            vdim=config.memory_dim,
            dropout=config.attention_dropout,
            encoder_decoder_attention=True,
        )
        self.need_attn = True

    def transform(self, x: Tensor, context: Context) -> Tensor:
        y: Tensor
        y, context.attn = self.encoder_attn(
            query=x,
            key=context.memory,
            value=context.memory,
            key_padding_mask=context.memory_padding_mask,
            incremental_state=context.incremental_state,
            static_kv=True,
            need_weights=context.need_attn or (not self.training and self.need_attn),
            need_head_weights=context.need_head_weights,
        )
        return y

    def make_generation_fast_(self, need_attn: bool = False, **kwargs: Any) -> None:
        self.need_attn = need_attn


def cross_attention(config: SlotConfig, stack: str) -> dict[str, CrossAttention]:
    """Build the sublayer ``cross`` for a decoder with a source; return an empty dictionary otherwise."""
    return {"cross": CrossAttention(config)} if stack == "decoder" and config.memory_dim else {}

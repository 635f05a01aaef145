"""fairseq's self-attention for projections with adapters."""

from typing import Any

import torch
import torch.nn.functional as F
from fairseq.modules import MultiheadAttention
from torch import Tensor


class AdaptedAttention(MultiheadAttention):
    """Attention that calls its projection layers: y = concat_h(softmax(q_h k_h^T / sqrt(d_h) + mask) v_h) Wo^T + bo.

    q_h, k_h and v_h are the projected inputs of head h, which has d_h channels. Inputs and y: (time, batch, dim). fairseq's
    fused attention reads the whole matrix of each projection instead. Its backward pass would compute the gradient of a whole
    matrix for an ``AdaptedLinear``, even if the adapter is small. All other operations equal those of the fused attention, in
    the same order. Calls that use a cache or return attention weights run fairseq's own implementation.
    """

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        incremental_state: dict[str, Any] | None = None,
        need_weights: bool = True,
        static_kv: bool = False,
        attn_mask: Tensor | None = None,
        before_softmax: bool = False,
        need_head_weights: bool = False,
    ) -> Any:
        needs_fairseq = (
            need_weights or need_head_weights or before_softmax or static_kv or incremental_state is not None
        )
        if needs_fairseq or self.bias_k is not None or self.add_zero_attn or self.use_xformers:
            return super().forward(
                query,
                key,
                value,
                key_padding_mask,
                incremental_state,
                need_weights,
                static_kv,
                attn_mask,
                before_softmax,
                need_head_weights,
            )
        time, batch, _ = query.shape
        q, k, v = (
            projection(x).view(len(x), batch, self.num_heads, -1).permute(1, 2, 0, 3)
            for projection, x in ((self.q_proj, query), (self.k_proj, key), (self.v_proj, value))
        )
        mask = combined_mask(q, batch, key_padding_mask, attn_mask)
        dropout = self.dropout_module.p if self.training or self.dropout_module.apply_during_inference else 0.0
        y = F.scaled_dot_product_attention(q, k, v, mask, dropout)
        return self.out_proj(y.permute(2, 0, 1, 3).reshape(time, batch, -1)), None


def as_additive(mask: Tensor, like: Tensor) -> Tensor:
    """Convert a mask to the dtype of ``like``, to be added to attention scores. True becomes -inf, and False becomes 0."""
    if mask.dtype != torch.bool:
        return mask.to(like.dtype)
    return like.new_zeros(mask.shape).masked_fill(mask, float("-inf"))


def combined_mask(like: Tensor, batch: int, key_padding_mask: Tensor | None, attn_mask: Tensor | None) -> Tensor | None:
    """Sum of both masks, to be added to attention scores (batch, heads, time, source), in the dtype of ``like``; None without masks."""
    mask = None if attn_mask is None else as_additive(attn_mask, like)
    if mask is not None and mask.dim() == 3:
        mask = mask.view(batch, -1, *mask.shape[1:])
    if key_padding_mask is not None:
        padding = as_additive(key_padding_mask.bool(), like)[:, None, None]
        mask = padding if mask is None else mask + padding
    return mask

"""fairseq's attention for projections with adapters."""

from typing import Any

import torch
import torch.nn.functional as F
from fairseq.modules import MultiheadAttention
from torch import Tensor


class AdaptedAttention(MultiheadAttention):
    """Attention that calls its projection layers: y = concat_h(softmax(q_h k_h^T / sqrt(d_h) + mask) v_h) Wo^T + bo.

    q_h, k_h and v_h are the projected inputs of head h, which has d_h channels. Inputs and y: (time, batch, dim). fairseq's
    fused attention does not call the projections but reads their matrices. For an ``AdaptedLinear``, the backward pass of fused attention
    would compute the gradient of a whole matrix, even if the adapter is small. Apart from the projections, the operations are
    those of the fused attention, in the same order. Calls that use a cache or return attention weights run fairseq's own implementation.
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
        weights = need_weights, before_softmax, need_head_weights
        adds_keys = self.bias_k is not None or self.add_zero_attn
        if any(weights) or static_kv or incremental_state is not None or adds_keys or self.use_xformers:
            options = need_weights, static_kv, attn_mask, before_softmax, need_head_weights
            return super().forward(query, key, value, key_padding_mask, incremental_state, *options)
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
    """Convert a mask into a summand of attention scores, in the dtype of ``like``: True becomes -inf, and False becomes 0."""
    if mask.dtype != torch.bool:
        return mask.to(like.dtype)
    return like.new_zeros(mask.shape).masked_fill(mask, float("-inf"))


def combined_mask(like: Tensor, batch: int, key_padding_mask: Tensor | None, attn_mask: Tensor | None) -> Tensor | None:
    """Combine ``key_padding_mask`` and ``attn_mask`` into one summand of the attention scores, in the dtype of ``like``.

    The shape is (batch, heads, time, source). Return None if neither mask is given.
    """
    mask = None if attn_mask is None else as_additive(attn_mask, like)
    if mask is not None and mask.dim() == 3:
        mask = mask.view(batch, -1, *mask.shape[1:])
    if key_padding_mask is not None:
        padding = as_additive(key_padding_mask.bool(), like)[:, None, None]
        mask = padding if mask is None else mask + padding
    return mask

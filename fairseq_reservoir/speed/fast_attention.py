"""Faster attention in training: one projection for q, k and v, and torch's fused kernel for all attention."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from fairseq.modules import MultiheadAttention
from torch import Tensor, nn

from ..layers.adapters.adapted_attention import AdaptedAttention, combined_mask
from ..layers.fast_dropout import fast_dropout
from ..layers.replace import MixedIn, replace_modules, with_mix_in
from .batched_products import usual_products

# cuDNN's attention is disabled only for batches of fewer tokens. On an H200 in fp16, a batch of 4,096 tokens took far less time without
# cuDNN, but a batch of 32,768 tokens took 1.21 times as long as in plain fairseq.
_MANY_TOKENS = 16384
# Number of float32 values in a SIMD register, and the row length from which a softmax in half precision is as fast as in float32.
_REGISTER, _PAYS = 16, 64


class FastAttention(MixedIn):
    """Mix-in for a ``MultiheadAttention``: y = concat_h(softmax(q_h k_h^T / sqrt(d_h) + mask) v_h) Wo^T + bo, (time, batch, dim).

    torch's fused kernel is also used for attention to the source, which fairseq computes step by step. Projections of the same input are
    computed as one matmul if they are plain layers that are all trained or all frozen. On a CPU, torch's kernel is slow with dropout and in
    half precision. In both cases, attention is computed step by step. In half precision, the backward pass of torch's kernel takes
    eight times as long as the step-by-step backward pass. On a GPU, torch's cuDNN kernel is not used for small batches (see
    ``without_plans``).

    With ``weights_unread`` no attention weights are computed. Outside training, fairseq's own ``forward`` runs. During training, it runs
    if an incremental state is given, or if fairseq adds keys of its own (``bias_k``, ``add_zero_attn``).
    """

    weights_unread = False

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
        # The signature repeats that of ``AdaptedAttention``, because a fast ``AdaptedAttention`` needs both ``forward`` methods, and a
        # common base class would give it only one.
        adds_keys = self.bias_k is not None or self.add_zero_attn
        read = before_softmax or ((need_weights or need_head_weights) and not self.weights_unread)
        if not self.training or read or incremental_state is not None or adds_keys or self.use_xformers:
            options = need_weights, static_kv, attn_mask, before_softmax, need_head_weights
            slow = super().forward
            with without_plans(query, query.shape[0] * query.shape[1]):
                return usual_products(
                    lambda q, k, v: slow(q, k, v, key_padding_mask, incremental_state, *options), query, key, value
                )
        time, batch, _ = query.shape
        q, k, v = (self._heads(x, batch) for x in self._project(query, key, value))
        mask = combined_mask(query, batch, key_padding_mask, attn_mask)
        y = usual_products(partial(attend, mask=mask, dropout=self.dropout_module.p), q, k, v)
        return self.out_proj(y.permute(2, 0, 1, 3).reshape(time * batch, -1)).view(time, batch, -1), None

    def _heads(self, x: Tensor, batch: int) -> Tensor:
        """Split (time x batch, dim) into (batch, heads, time, dim of a head)."""
        return x.view(-1, batch, self.num_heads, x.shape[-1] // self.num_heads).permute(1, 2, 0, 3)

    def _project(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, ...]:
        if query is key is value:
            return _together(query, self.q_proj, self.k_proj, self.v_proj)
        if key is value:
            return (*_together(query, self.q_proj), *_together(key, self.k_proj, self.v_proj))
        return (*_together(query, self.q_proj), *_together(key, self.k_proj), *_together(value, self.v_proj))


def _together(x: Tensor, *layers: Any) -> tuple[Tensor, ...]:
    """Apply all ``layers`` to x, (..., dim). Use one matmul if all are plain ``nn.Linear`` with the same ``requires_grad``."""
    x = x.reshape(-1, x.shape[-1])
    ordinary = all(
        type(layer) is nn.Linear and layer.bias is not None and not layer._forward_pre_hooks for layer in layers
    )
    trained = {(layer.weight.requires_grad, layer.bias.requires_grad) for layer in layers} if ordinary else ()
    if len(layers) == 1 or len(trained) != 1 or len({layer.weight.dtype for layer in layers}) != 1:
        return tuple(layer(x) for layer in layers)
    weight, bias = torch.cat([layer.weight for layer in layers]), torch.cat([layer.bias for layer in layers])
    parts: tuple[Tensor, ...] = F.linear(x, weight, bias).split([len(layer.weight) for layer in layers], -1)
    return parts


def attend(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, dropout: float) -> Tensor:
    """Compute softmax(q k^T / sqrt(d) + mask) v; q, k, v: (batch, heads, time, d). ``mask`` may be None.

    As in torch's kernel, the result is 0 for a token that can attend to no token, such as padding before a decoder's sentence.
    """
    if q.device.type != "cpu" or q.dtype == torch.float32 and not dropout:
        with without_plans(q, q.shape[0] * q.shape[2]):
            return F.scaled_dot_product_attention(q, k, v, mask, dropout)
    weights = (q * q.shape[-1] ** -0.5) @ k.transpose(-1, -2)
    nowhere = None
    if mask is not None:
        weights = weights + mask
        nowhere = (mask == -torch.inf).all(-1, keepdim=True)
    if nowhere is not None and nowhere.any():
        weights = _softmax(weights.masked_fill(nowhere, 0)).masked_fill(nowhere, 0)
    else:
        weights = _softmax(weights)
    return (fast_dropout(weights, dropout) if dropout else weights) @ v


@contextmanager
def without_plans(x: Tensor, tokens: int = 0) -> Iterator[None]:
    """Disable cuDNN's attention inside the block for a small batch. torch prefers cuDNN in half precision on a Hopper GPU.

    cuDNN computes an execution plan for every new batch shape. Computing the plan takes longer than the update of a small batch, and
    fairseq's batches have hundreds of shapes. torch's other kernels need no plan. Large batches have few shapes, and cuDNN is faster for
    large batches. The setting is global in the process. If several threads use models at the same time, cuDNN's attention may stay
    disabled. torch.compile cannot read the setting, so this function does nothing inside compiled code.

    Args:
        x: a tensor on the device of the attention.
        tokens: number of queries in the batch.
    """
    if x.device.type == "cpu" or torch.compiler.is_compiling() or tokens >= _MANY_TOKENS:
        yield
        return
    before = torch.backends.cuda.cudnn_sdp_enabled()
    torch.backends.cuda.enable_cudnn_sdp(False)
    try:
        yield
    finally:
        torch.backends.cuda.enable_cudnn_sdp(before)


def _softmax(x: Tensor) -> Tensor:
    """Compute a softmax over the last dimension. Rows shorter than a SIMD register are padded, because torch is up to 9x slower for them.

    Short rows in half precision are computed in float32, because a register holds fewer float32 values and so needs less padding.
    """
    length, half = x.shape[-1], x.dtype in (torch.bfloat16, torch.float16)
    if length >= (_PAYS if half else _REGISTER):
        return torch.softmax(x, -1)
    if length < _REGISTER:
        x = F.pad(x, (0, _REGISTER - length), value=-torch.inf)
    return torch.softmax(x, -1, dtype=torch.float32 if half else x.dtype).to(x.dtype)[..., :length]


def use_fast_attention(model: nn.Module, weights_unread: bool) -> None:
    """Replace the attention modules of a model by faster modules.

    Args:
        model: the model. Attention modules that do not compute fairseq's attention are not replaced.
        weights_unread: True if nothing reads the attention weights that the decoder requests from its last layer.
    """
    replace_modules(model, partial(fast_attention, weights_unread=weights_unread))


def fast_attention(module: nn.Module, weights_unread: bool) -> nn.Module | None:
    """Return a faster module for fairseq's attention (``is_usual``); None for other modules."""
    if not isinstance(module, MultiheadAttention) or not is_usual(module):
        return None
    fast: nn.Module = with_mix_in(FastAttention, module)
    fast.weights_unread = weights_unread  # type: ignore[assignment]  # a flag is neither tensor nor module
    return fast


def is_usual(attention: MultiheadAttention) -> bool:
    """Whether an attention module computes the same function as fairseq's ``MultiheadAttention``. Subclasses may compute another function.

    Return False if projections have hooks, because fairseq's self-attention calls no hooks. --quant-noise-pq adds such hooks.
    """
    usual = MultiheadAttention.forward, AdaptedAttention.forward, FastAttention.forward
    projections = (getattr(attention, f"{name}_proj") for name in ("q", "k", "v", "out"))
    return (
        type(attention).forward in usual
        and type(attention).apply_sparse_mask is MultiheadAttention.apply_sparse_mask
        and not any(projection._forward_pre_hooks for projection in projections)
    )

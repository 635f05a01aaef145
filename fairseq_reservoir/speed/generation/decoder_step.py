"""One step of fairseq's Transformer decoder with caches of fixed shapes. The host reads no value from the device.

fairseq's attention appends keys and values to a tensor that grows in every step, and copies the tensor when beams are reordered. In this
module, each step writes its keys and values to its own slot in a cache of fixed size. Attention masks all slots that do not belong to
ancestors of the hypothesis. The result differs from fairseq's only by rounding, because sums over keys also contain zeros for the masked
keys.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from fairseq.modules import MultiheadAttention
from torch import Tensor, nn

from ...layers.base import Context, Slot
from ...layers.cross_attention import CrossAttention
from .state import LayerCache, State


@dataclass
class _Step:
    """Inputs of all layers: the state, and two masks that are true at keys to ignore.

    The mask of generated tokens is (batch, 1, beam, steps * beam). The mask of the source is (batch, 1, 1, source).
    """

    state: State
    blocked: Tensor
    source_blocked: Tensor


class DecoderStep:
    """Compute the logits of the next token of all beams, and store keys and values in a ``State``. There is no dropout.

    Args:
        decoder: the decoder of a model for which ``decoder_checks.unsupported_model`` returns None.
    """

    def __init__(self, decoder: Any) -> None:
        self.decoder = decoder
        self.layers: list[Any] = list(decoder.layers.children())

    def new_caches(self, batch: int, source: int, steps: int, beam: int) -> list[LayerCache]:
        """Allocate caches of zeros on the device and in the dtype of the decoder."""
        like = self.decoder.embed_tokens.weight

        def zeros(attention, *shape):
            return like.new_zeros(batch, attention.num_heads, *shape, attention.head_dim, requires_grad=False)

        caches = []
        for layer in self.layers:
            cache = LayerCache()
            if (own := _self_attention(layer)) is not None:
                cache.keys, cache.values = zeros(own, steps, beam), zeros(own, steps, beam)
            if (cross := _cross_attention(layer)) is not None:
                cache.source_keys, cache.source_values = zeros(cross, source), zeros(cross, source)
            caches.append(cache)
        return caches

    def project_source(self, memory: Tensor) -> list[tuple[Tensor, Tensor] | None]:
        """Project the encoder's output (tokens, batch, dim) to each layer's keys and values (batch, heads, tokens, head_dim)."""
        found: list[tuple[Tensor, Tensor] | None] = []
        for layer in self.layers:
            cross = _cross_attention(layer)
            if cross is None:
                found.append(None)
                continue
            tokens, batch, _ = memory.shape
            keys, values = (
                projection(memory).view(tokens, batch, cross.num_heads, -1).permute(1, 2, 0, 3)
                for projection in (cross.k_proj, cross.v_proj)
            )
            found.append((keys, values))
        return found

    def __call__(self, state: State) -> Tensor:
        """Return the logits (batch * beam, vocabulary) after the tokens ``state.token`` at the position ``state.step``."""
        decoder = self.decoder
        batch, beam, steps = state.ancestors.shape
        x = decoder.embed_scale * decoder.embed_tokens(state.token.view(-1))
        if decoder.project_in_dim is not None:
            x = decoder.project_in_dim(x)
        if decoder.embed_positions is not None:
            x += position(decoder.embed_positions, state.step)
        if decoder.layernorm_embedding is not None:
            x = decoder.layernorm_embedding(x)

        beams = torch.arange(beam, device=x.device)
        state.ancestors.index_copy_(2, state.step, beams.view(1, beam, 1).expand(batch, beam, 1))
        blocked = state.ancestors.unsqueeze(3).ne(beams).view(batch, 1, beam, steps * beam)
        step = _Step(state, blocked, state.source_padding.view(batch, 1, 1, -1))
        for layer, cache in zip(self.layers, state.layers, strict=True):
            run = _slot if isinstance(layer, Slot) else _transformer_layer
            x = run(layer, x, cache, step)

        if decoder.layer_norm is not None:
            x = decoder.layer_norm(x)
        if decoder.project_out_dim is not None:
            x = decoder.project_out_dim(x)
        return decoder.output_projection(x)


def position(embedding: Any, step: Tensor) -> Tensor:
    """Return the vector of a position, of shape (1, dim). The position, of shape (1,), is counted from 0.

    fairseq counts positions from ``padding_idx`` + 1.
    """
    return _positions(embedding).index_select(0, step + (embedding.padding_idx + 1))


def position_count(embedding: Any) -> int:
    """Return the number of positions that have a vector."""
    return len(_positions(embedding)) - (embedding.padding_idx + 1)


def _positions(embedding: Any) -> Tensor:
    table: Tensor = embedding.weights if hasattr(embedding, "weights") else embedding.weight
    return table


def _self_attention(layer: Any) -> MultiheadAttention | None:
    return None if isinstance(layer, Slot) else layer.self_attn


def _cross_attention(layer: Any) -> MultiheadAttention | None:
    if isinstance(layer, Slot):
        return next((part.encoder_attn for part in layer.children() if isinstance(part, CrossAttention)), None)
    return layer.encoder_attn


def _transformer_layer(layer: Any, x: Tensor, cache: LayerCache, step: _Step) -> Tensor:
    """Compute fairseq's ``TransformerDecoderLayerBase.forward`` for one token per beam; x and the result: (batch * beam, dim)."""
    first = layer.normalize_before
    x = _residual(layer.self_attn_layer_norm, first, x, lambda y: _attend_to_ancestors(layer.self_attn, y, cache, step))
    if layer.encoder_attn is not None:
        x = _residual(
            layer.encoder_attn_layer_norm, first, x, lambda y: _attend_to_source(layer.encoder_attn, y, cache, step)
        )
    return _residual(layer.final_layer_norm, first, x, lambda y: layer.fc2(layer.activation_fn(layer.fc1(y))))


def _residual(norm: nn.Module, norm_first: bool, x: Tensor, function: Callable[[Tensor], Tensor]) -> Tensor:
    """Compute x + f(norm(x)) with ``norm_first``, else norm(x + f(x))."""
    if norm_first:
        return x + function(norm(x))
    normed: Tensor = norm(x + function(x))
    return normed


def _slot(slot: Slot, x: Tensor, cache: LayerCache, step: _Step) -> Tensor:
    """Compute ``Slot.run`` for one token per beam. Sublayers without a cache process each token independently."""
    for part in slot.children():
        if isinstance(part, CrossAttention):
            attend = partial(_attend_to_source, part.encoder_attn, cache=cache, step=step)
            x = _residual(part.layer_norm, part.norm_first, x, attend)
        else:
            x = part(x, Context())
    return x


def _attend_to_ancestors(attention: Any, x: Tensor, cache: LayerCache, step: _Step) -> Tensor:
    """Attend from the last token of each hypothesis to all tokens of the same hypothesis; x: (batch * beam, dim)."""
    assert cache.keys is not None and cache.values is not None
    for stored, projection in ((cache.keys, attention.k_proj), (cache.values, attention.v_proj)):
        stored.index_copy_(2, step.state.step, _heads(projection(x), attention, stored.size(3)).unsqueeze(2))
    return _attend(attention, x, cache.keys.flatten(2, 3), cache.values.flatten(2, 3), step.blocked)


def _attend_to_source(attention: Any, x: Tensor, cache: LayerCache, step: _Step) -> Tensor:
    assert cache.source_keys is not None and cache.source_values is not None
    return _attend(attention, x, cache.source_keys, cache.source_values, step.source_blocked)


def _attend(attention: Any, x: Tensor, keys: Tensor, values: Tensor, blocked: Tensor) -> Tensor:
    """Compute out_proj(concat_h(softmax(q_h K_h^T / sqrt(head_dim)) V_h)). Keys are ignored where ``blocked`` is true.

    Args:
        x: (batch * beam, dim).
        keys, values: (batch, heads, places, head_dim).
        blocked: bool, broadcast to (batch, heads, beam, places).
    """
    queries = _heads(attention.q_proj(x) * attention.scaling, attention, x.size(0) // keys.size(0))
    scores = (queries @ keys.transpose(2, 3)).masked_fill_(blocked, -torch.inf)
    shares = torch.softmax(scores, dim=-1, dtype=torch.float32).to(x.dtype)
    return attention.out_proj((shares @ values).transpose(1, 2).reshape(x.size(0), -1))


def _heads(x: Tensor, attention: Any, beam: int) -> Tensor:
    """Split (batch * beam, dim) into (batch, heads, beam, head_dim)."""
    return x.view(-1, beam, attention.num_heads, attention.head_dim).transpose(1, 2)

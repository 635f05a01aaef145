"""S and s: attention whose weights do not depend on what is read, only on how far apart two words are.

With weights fixed at random and v and o trained (S) it is the static random attention of Dong et al., 2025 (MixiT), with
trained weights (s) the linear form of MLP-Mixer's token mixing (Tolstikhin et al., 2021). FNet's "Random" fixes v and o too.
"""

import math
from collections.abc import Callable
from typing import Any

import torch
from fairseq.incremental_decoding_utils import with_incremental_state
from torch import Tensor, nn
from torch.nn import functional

from .base import Context, SlotConfig, Sublayer, register
from .cross_attention import cross_attention
from .feed_forward import FeedForward

# The least sum of squares that weights are divided by the root of; each starts at 1 / 16.
_LEAST = 1e-8


@with_incremental_state
class StaticMixing(Sublayer):
    """f(X) = [A_1 V_1, ..., A_H V_H] Wo + bo with V = X Wv + bv, its channels divided among H heads.

    A_h[i, j] = w_h[j - i] / sqrt(sum of w_h[k - i]^2 over the words k), in a decoder over the words k <= i only and 0
    for j > i. All rows of A have norm 1, so that independent words of variance s keep it, whatever the length.

    One weight for each distance rather than for each pair of positions: a sentence means the same wherever padding puts it,
    every length up to ``max_positions`` has its weights, a trained A has met the distances of a longer sentence up to
    the length it was trained on, words further apart than that, as with a mark before a block of full length, have the weights
    of the furthest, and a layer stores 2 max_positions - 1 numbers per head instead of their square. (FNet's
    and MixiT's random matrices and MLP-Mixer's trained ones are of one fixed length.)

    Parameters: ``mix`` w (heads, 2 max_positions - 1), in a decoder (heads, max_positions), where column
    max_positions - 1 is the word itself and the one before it the previous word; ``v_proj`` and ``out_proj`` as in
    attention. S freezes ``mix`` and nothing else. A batch T words long takes T multiply-adds of each channel and word, half
    of what attention's scores and sums take, and a T x T matrix for each head, the same one for all sentences.

    Raises:
        ValueError: the heads do not divide the width.
    """

    get_incremental_state: Callable[..., Any]  # fairseq's
    set_incremental_state: Callable[..., Any]

    def __init__(self, config: SlotConfig, causal: bool) -> None:
        super().__init__(config)
        if config.embed_dim % config.heads:
            raise ValueError(f"{config.heads} heads do not divide a width of {config.embed_dim}")
        self.heads, self.positions, self.causal = config.heads, config.max_positions, causal
        distances = self.positions if causal else 2 * self.positions - 1
        self.mix = nn.Parameter(torch.empty(self.heads, distances))
        self.v_proj = nn.Linear(config.embed_dim, config.embed_dim)
        self.out_proj = nn.Linear(config.embed_dim, config.embed_dim)
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Weights +-1/4, as S draws them, from torch's generator; projections as fairseq's attention has them.

        The size of the weights changes no output, only how far a step of the optimizer turns them: at 1/4 a row of 16 has
        norm 1, and its gradient is that of A.
        """
        self.mix.bernoulli_(0.5).sub_(0.5).div_(2)
        nn.init.xavier_uniform_(self.v_proj.weight, gain=1 / math.sqrt(2))
        nn.init.xavier_uniform_(self.out_proj.weight)
        nn.init.zeros_(self.out_proj.bias)

    def transform(self, x: Tensor, context: Context) -> Tensor:
        v, is_word = self.v_proj(x), None
        if context.padding_mask is not None:
            v = v.masked_fill(context.padding_mask.t().unsqueeze(2), 0)
            is_word = ~context.padding_mask.t()
        if context.incremental_state is not None:
            v, is_word = self._remember(v, is_word, context.incremental_state)
        rows, (time, batch, width) = x.size(0), v.shape
        weights = self._weights(rows, time)
        heads = v.view(time, batch, self.heads, -1).permute(2, 0, 1, 3).reshape(self.heads, time, -1)
        y = (weights.to(v.dtype) @ heads).view(self.heads, rows, batch, -1)
        y = y * _inverse_norms(weights, is_word).unsqueeze(-1).to(y.dtype)
        out: Tensor = self.out_proj(y.permute(1, 2, 0, 3).reshape(rows, batch, width))
        return out

    def _weights(self, rows: int, time: int) -> Tensor:
        """w[j - i] for the last ``rows`` words i and all ``time`` words j, 0 where a decoder may not look.  (heads, i, j)"""
        further = max(0, time - self.positions)
        mix = self._lengthened(further) if further else self.mix
        # Row i reads a window of the distances, each row one further to the left than the row above it.
        longest = self.positions + further
        window = mix[:, longest - time : longest + rows - 1]
        window = functional.pad(window, (0, time + rows - 1 - window.size(1)))
        return window.unfold(1, time, 1).flip(1)

    def _lengthened(self, further: int) -> Tensor:
        before, after = self.mix[:, :1].expand(-1, further), self.mix[:, -1:].expand(-1, further)
        return torch.cat((before, self.mix) if self.causal else (before, self.mix, after), 1)

    def _remember(self, v: Tensor, is_word: Tensor | None, incremental_state: dict[str, Any]) -> tuple[Tensor, Tensor]:
        """Values (time, batch, dim) and words (time, batch) so far, with the new ones appended."""
        if is_word is None:
            is_word = torch.ones(v.shape[:2], dtype=torch.bool, device=v.device)
        state = self.get_incremental_state(incremental_state, "mixing") or {}
        if state:
            v, is_word = torch.cat((state["v"], v)), torch.cat((state["is_word"], is_word))
        self.set_incremental_state(incremental_state, "mixing", {"v": v, "is_word": is_word})
        return v, is_word

    def reorder_incremental_state(self, incremental_state: dict[str, Any], new_order: Tensor) -> None:
        """Beams change places; fairseq calls this."""
        state = self.get_incremental_state(incremental_state, "mixing")
        if state is not None:
            moved = {name: tensor.index_select(1, new_order) for name, tensor in state.items()}
            self.set_incremental_state(incremental_state, "mixing", moved)


def _inverse_norms(weights: Tensor, is_word: Tensor | None) -> Tensor:
    """1 / sqrt(sum of squared weights that meet a word), float32 or better.  (heads, i, batch), batch 1 if all are words"""
    with torch.autocast(weights.device.type, enabled=False):
        squares = (weights if weights.dtype == torch.float64 else weights.float()).square()
        sums = squares.sum(2, keepdim=True) if is_word is None else squares @ is_word.to(squares.dtype)
        return sums.clamp(min=_LEAST).rsqrt()


@register("S")
def static_mixing(config: SlotConfig, stack: str) -> dict[str, Sublayer]:
    return {
        "self_attn": StaticMixing(config, causal=stack == "decoder"),
        **cross_attention(config, stack),
        "ffn": FeedForward(config),
    }

"""S and s: static mixing. This is attention whose weights depend only on the distance between tokens.

In S, the weights are random and frozen, and the value and output projections are trained, as in the static random attention of
MixiT (Dong et al., 2025). In s, the weights are trained too, as in the token mixing of MLP-Mixer (Tolstikhin et al., 2021), but
without its nonlinearity. FNet's "Random" model freezes the weights and the projections.
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

# Lower bound of a sum of squared weights. It prevents a division by 0. Initially, a squared weight is 1 / 16.
_LEAST = 1e-8


@with_incremental_state
class StaticMixing(Sublayer):
    """Static mixing f(X) = [A_1 V_1, ..., A_H V_H] Wo + bo with V = X Wv + bv, split into H heads.

    A_h[i, j] = w_h[j - i] / sqrt(sum of w_h[k - i]^2 over all tokens k). In a decoder the sum runs over k <= i, and A is 0 for
    j > i. Rows of A have norm 1, so for independent tokens the variance of A V does not depend on the sentence length.

    FNet, MixiT and MLP-Mixer use one fixed sentence length. Here there is one weight per distance, not per pair of positions, for
    four reasons. Padding does not change the result. Every sentence length is possible: distances of
    ``max_positions`` and more use the last weight. A sentence that is longer than all training sentences still uses trained weights
    for the distances that occurred in training. A layer stores 2 max_positions - 1 numbers per head instead of max_positions^2.

    Parameters: ``mix`` is w, (heads, 2 max_positions - 1), or (heads, max_positions) in a decoder. Column max_positions - 1 contains the
    weight of distance 0. Column max_positions - 2 contains the weight of the previous token. ``v_proj`` and ``out_proj`` are as in
    attention. S freezes only ``mix``.

    With T tokens per sentence, mixing costs T multiply-adds per token and channel. Attention costs 2 T for its scores and sums.
    The mixing needs one T x T matrix per head, shared by all sentences.

    Raises:
        ValueError: the width is not a multiple of the number of heads.
    """

    get_incremental_state: Callable[..., Any]  # fairseq's
    set_incremental_state: Callable[..., Any]

    def __init__(self, config: SlotConfig, causal: bool) -> None:
        super().__init__(config)
        if config.embed_dim % config.heads:
            raise ValueError(
                f"{config.heads} heads do not divide a width of {config.embed_dim}; the width must be a multiple of the number of heads"
            )
        self.heads, self.positions, self.causal = config.heads, config.max_positions, causal
        distances = self.positions if causal else 2 * self.positions - 1
        self.mix = nn.Parameter(torch.empty(self.heads, distances))
        self.v_proj = nn.Linear(config.embed_dim, config.embed_dim)
        self.out_proj = nn.Linear(config.embed_dim, config.embed_dim)
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Draw weights of +-1/4 from torch's generator, and initialise projections as in fairseq's attention.

        The magnitude of the weights changes only the effect of an optimizer step, not the output. With 1/4, a row of 16 weights
        has norm 1, so the gradients of the weights and of A have the same magnitude.
        """
        self.mix.bernoulli_(0.5).sub_(0.5).div_(2)
        nn.init.xavier_uniform_(self.v_proj.weight, gain=1 / math.sqrt(2))
        nn.init.xavier_uniform_(self.out_proj.weight)
        nn.init.zeros_(self.out_proj.bias)

    def transform(self, x: Tensor, context: Context) -> Tensor:
        v, is_token = self.v_proj(x), None
        if context.padding_mask is not None:
            v = v.masked_fill(context.padding_mask.t().unsqueeze(2), 0)
            is_token = ~context.padding_mask.t()
        if context.incremental_state is not None:
            v, is_token = self._remember(v, is_token, context.incremental_state)
        rows, (time, batch, width) = x.size(0), v.shape
        weights = self._weights(rows, time)
        heads = v.view(time, batch, self.heads, -1).permute(2, 0, 1, 3).reshape(self.heads, time, -1)
        y = (weights.to(v.dtype) @ heads).view(self.heads, rows, batch, -1)
        y = y * _inverse_norms(weights, is_token).unsqueeze(-1).to(y.dtype)
        out: Tensor = self.out_proj(y.permute(1, 2, 0, 3).reshape(rows, batch, width))
        return out

    def _weights(self, rows: int, time: int) -> Tensor:
        """Return w[j - i] for the last ``rows`` tokens i and all ``time`` tokens j; (heads, rows, time). In a decoder it is 0 for j > i."""
        excess = max(0, time - self.positions)
        mix = self._lengthened(excess) if excess else self.mix
        # Row i is a window of ``mix``. Each window starts one column to the left of the window of the row above.
        longest = self.positions + excess
        window = mix[:, longest - time : longest + rows - 1]
        window = functional.pad(window, (0, time + rows - 1 - window.size(1)))
        return window.unfold(1, time, 1).flip(1)

    def _lengthened(self, excess: int) -> Tensor:
        """Repeat the outermost weight of each side ``excess`` times. In a decoder, there is only one side."""
        before, after = self.mix[:, :1].expand(-1, excess), self.mix[:, -1:].expand(-1, excess)
        return torch.cat((before, self.mix) if self.causal else (before, self.mix, after), 1)

    def _remember(self, v: Tensor, is_token: Tensor | None, incremental_state: dict[str, Any]) -> tuple[Tensor, Tensor]:
        """Append values (time, batch, dim) and token masks (time, batch) to the incremental state. Return all values and masks so far."""
        if is_token is None:
            is_token = torch.ones(v.shape[:2], dtype=torch.bool, device=v.device)
        state = self.get_incremental_state(incremental_state, "mixing") or {}
        if state:
            v, is_token = torch.cat((state["v"], v)), torch.cat((state["is_token"], is_token))
        self.set_incremental_state(incremental_state, "mixing", {"v": v, "is_token": is_token})
        return v, is_token

    def reorder_incremental_state(self, incremental_state: dict[str, Any], new_order: Tensor) -> None:
        """Reorder the cached sentences. fairseq calls this method in beam search."""
        state = self.get_incremental_state(incremental_state, "mixing")
        if state is not None:
            moved = {name: tensor.index_select(1, new_order) for name, tensor in state.items()}
            self.set_incremental_state(incremental_state, "mixing", moved)


def _inverse_norms(weights: Tensor, is_token: Tensor | None) -> Tensor:
    """Compute 1 / sqrt(sum of squared weights of real tokens), (heads, rows, batch); batch is 1 if no token is padding."""
    with torch.autocast(weights.device.type, enabled=False):
        squares = (weights if weights.dtype == torch.float64 else weights.float()).square()
        sums = squares.sum(2, keepdim=True) if is_token is None else squares @ is_token.to(squares.dtype)
        return sums.clamp(min=_LEAST).rsqrt()


@register("S")
def static_mixing(config: SlotConfig, stack: str) -> dict[str, Sublayer]:
    return {
        "self_attn": StaticMixing(config, causal=stack == "decoder"),
        **cross_attention(config, stack),
        "ffn": FeedForward(config),
    }

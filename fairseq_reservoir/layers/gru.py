"""G: GRU, bidirectional in an encoder. Shen et al. (2021) mention this layer but do not specify it. The residual form is ours."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from fairseq.incremental_decoding_utils import with_incremental_state
from torch import Tensor, nn

from .base import Context, SlotConfig, Sublayer, register


class BiGRU(Sublayer):
    """Bidirectional GRU f(x) = [GRU(x), GRU'(x reversed) reversed], with embed_dim / 2 units in each direction.

    For each direction, padding is moved behind the sentence before the GRU runs, and moved back afterwards. So padding on either side
    has no effect on the outputs of tokens, and the host reads no sentence length.

    Raises:
        ValueError: embed_dim is odd.
    """

    def __init__(self, config: SlotConfig) -> None:
        super().__init__(config)
        if config.embed_dim % 2:
            raise ValueError(f"a bidirectional GRU needs an even width, not {config.embed_dim}")
        self.rightward = nn.GRU(config.embed_dim, config.embed_dim // 2)
        self.leftward = nn.GRU(config.embed_dim, config.embed_dim // 2)

    def transform(self, x: Tensor, context: Context) -> Tensor:
        mask = context.padding_mask
        backward_mask = None if mask is None else mask.flip(1)
        rightward = _run(self.rightward, x, mask)
        leftward = _run(self.leftward, x.flip(0), backward_mask).flip(0)
        return torch.cat((rightward, leftward), dim=2)


@with_incremental_state
class CausalGRU(Sublayer):
    """GRU f(x) = GRU(x) with embed_dim units, for a decoder. It reads from left to right only.

    Padding on either side has no effect on the outputs of tokens. In generation, the state after the last token is cached.
    """

    get_incremental_state: Callable[..., Any]  # fairseq's
    set_incremental_state: Callable[..., Any]

    def __init__(self, config: SlotConfig) -> None:
        super().__init__(config)
        self.rightward = nn.GRU(config.embed_dim, config.embed_dim)

    def transform(self, x: Tensor, context: Context) -> Tensor:
        mask, cache = context.padding_mask, context.incremental_state
        if cache is None:
            return _run(self.rightward, x, mask)
        before = (self.get_incremental_state(cache, "gru") or {}).get("state")
        if before is None:
            before = torch.zeros_like(x[:1])
        y = _run(self.rightward, x, mask, before)
        # A GRU's output is its state. Padding keeps the state before it.
        state = y[-1:] if mask is None else torch.where(mask[:, -1:].t().unsqueeze(2), before, y[-1:])
        self.set_incremental_state(cache, "gru", {"state": state})
        return y

    def reorder_incremental_state(self, incremental_state: dict[str, Any], new_order: Tensor) -> None:
        """Reorder the cached states. fairseq calls this method in beam search."""
        cached = self.get_incremental_state(incremental_state, "gru")
        if cached is not None:
            self.set_incremental_state(incremental_state, "gru", {"state": cached["state"].index_select(1, new_order)})


def _run(gru: nn.GRU, x: Tensor, padding_mask: Tensor | None, state: Tensor | None = None) -> Tensor:
    """Run a GRU first over the tokens of each sentence, then over its padding. Outputs (time, batch, width) are meaningless at padding.

    ``state`` (1, batch, width) is the state before the first token, 0 by default.
    """
    outputs = (
        gru if x.device.type == "cpu" or len({p.dtype for p in gru.parameters()}) == 1 else partial(in_one_dtype, gru)
    )
    if state is not None:
        state = state.to(x.dtype)
    if padding_mask is None:
        whole: Tensor = outputs(x, state)[0]
        return whole
    tokens_first = padding_mask.t().byte().argsort(dim=0, stable=True)
    y = outputs(_reorder(x, tokens_first), state)[0]
    return _reorder(y, tokens_first.argsort(dim=0))


def in_one_dtype(gru: nn.GRU, x: Tensor, state: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Compute ``gru(x, state)`` in the dtype of its matrices. cuDNN needs one dtype, but ``--frozen-dtype`` keeps biases in float32."""
    weights = list(gru.parameters())
    dtype = weights[0].dtype
    with torch.autocast(x.device.type, enabled=False):
        hidden = x.new_zeros(1, x.size(1), gru.hidden_size) if state is None else state
        rounded = [weight.to(dtype) for weight in weights]
        # The last arguments stand for: with biases, one layer, no dropout, training, one direction, time first.
        result: tuple[Tensor, Tensor] = torch._VF.gru(
            x.to(dtype), hidden.to(dtype), rounded, True, 1, 0.0, gru.training, False, False
        )
    return result


def _reorder(x: Tensor, order: Tensor) -> Tensor:
    return x.gather(0, order.unsqueeze(-1).expand(-1, -1, x.size(2)))


@register("G")
def gru(config: SlotConfig, stack: str) -> dict[str, Sublayer]:
    return {"gru": CausalGRU(config) if stack == "decoder" else BiGRU(config)}

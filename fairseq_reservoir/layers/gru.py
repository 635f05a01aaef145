"""G: the bidirectional GRU reservoir that Shen et al., 2021, mention; its residual form is ours, they do not give one."""

import torch
from torch import Tensor, nn

from .base import Context, SlotConfig, Sublayer, register


class BiGRU(Sublayer):
    """f(x) = [GRU(x), GRU'(x reversed) reversed], each direction embed_dim / 2 wide, so that no projection is needed.

    Padding is moved behind the sentence before a direction runs and back afterwards, wherever it stood; a sentence's
    output therefore does not depend on the padding on either side, and no length has to be known on the host.

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


def _run(gru: nn.GRU, x: Tensor, padding_mask: Tensor | None) -> Tensor:
    """The GRU's outputs (time, batch, width) with padding skipped; what stands at padding is of no meaning."""
    if padding_mask is None:
        whole: Tensor = gru(x)[0]
        return whole
    words_first = padding_mask.t().byte().argsort(dim=0, stable=True)
    y = gru(_take(x, words_first))[0]
    return _take(y, words_first.argsort(dim=0))


def _take(x: Tensor, order: Tensor) -> Tensor:
    return x.gather(0, order.unsqueeze(-1).expand(-1, -1, x.size(2)))


@register("G")
def gru(config: SlotConfig, stack: str) -> dict[str, Sublayer]:
    return {"gru": BiGRU(config)}

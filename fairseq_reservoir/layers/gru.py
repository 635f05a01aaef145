"""G: the bidirectional GRU reservoir that Shen et al., 2021, mention; its residual form is ours, they do not give one."""

from functools import partial

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
    outputs = (
        gru if x.device.type == "cpu" or len({p.dtype for p in gru.parameters()}) == 1 else partial(in_one_type, gru)
    )
    if padding_mask is None:
        whole: Tensor = outputs(x)[0]
        return whole
    words_first = padding_mask.t().byte().argsort(dim=0, stable=True)
    y = outputs(_take(x, words_first))[0]
    return _take(y, words_first.argsort(dim=0))


def in_one_type(gru: nn.GRU, x: Tensor) -> tuple[Tensor, Tensor]:
    """``gru(x)``, all of it in the type of its matrices: cuDNN takes no biases of another, which ``--frozen-dtype`` leaves in float32."""
    weights = list(gru.parameters())
    dtype = weights[0].dtype
    with torch.autocast(x.device.type, enabled=False):
        hidden = x.new_zeros(1, x.size(1), gru.hidden_size, dtype=dtype)
        rounded = [weight.to(dtype) for weight in weights]
        # As nn.GRU calls it: with biases, one layer, no dropout, in one direction, time first.
        result: tuple[Tensor, Tensor] = torch._VF.gru(
            x.to(dtype), hidden, rounded, True, 1, 0.0, gru.training, False, False
        )
    return result


def _take(x: Tensor, order: Tensor) -> Tensor:
    return x.gather(0, order.unsqueeze(-1).expand(-1, -1, x.size(2)))


@register("G")
def gru(config: SlotConfig, stack: str) -> dict[str, Sublayer]:
    return {"gru": BiGRU(config)}

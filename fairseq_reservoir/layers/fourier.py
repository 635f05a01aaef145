"""M: Fourier mixing (Lee-Thorp et al., 2021, "FNet: Mixing Tokens with Fourier Transforms"), encoder only.

FNet has hybrids with 2 attention layers (L) and 10 mixing layers (M). Their plans are ``2L10M`` (attention at the bottom),
``5M2L5M`` (in the middle), ``10M2L`` (at the top; the best in the paper) and ``L5ML5M`` (mixed).
"""

import math

import torch
from torch import Tensor

from .base import Context, SlotConfig, Sublayer, register
from .feed_forward import FeedForward


class Fourier(Sublayer):
    """Fourier mixing f(X) = Re(F_n X F_d) / sqrt(n d) of a sentence X (n, d), with F_n[j, k] = exp(-2 pi i j k / n).

    There are no parameters. The transform runs in float32 (float64 in a float64 model). The output is 0 at padding. n is the
    number of tokens in the sentence, so padding and the other sentences of the batch have no effect. The factor 1 / sqrt(n d)
    is ours. FNet has no such factor, so its mixing multiplies the variance by n d. As in FNet, no dropout follows the mixing.

    A batch without padding is computed by two FFTs. With padding, the tokens of each sentence are multiplied by the real and the imaginary
    part of F_n. Both parts are computed on the device from the sentence's length, without synchronising with the host. With T tokens per
    sentence, this costs 2 T multiply-adds per token and channel, and the memory of two T x T matrices per sentence. The scores and sums of
    attention cost the same 2 T multiply-adds, and the memory of one T x T matrix per head and sentence.
    """

    def __init__(self, config: SlotConfig) -> None:
        super().__init__(config)
        self.dropout_module.p = 0.0

    def transform(self, x: Tensor, context: Context) -> Tensor:
        with torch.autocast(x.device.type, enabled=False):
            exact = x if x.dtype == torch.float64 else x.float()
            if context.padding_mask is None:
                mixed: Tensor = torch.fft.fft2(exact, dim=(0, 2), norm="ortho").real
            else:
                mixed = _transform_tokens(exact, context.padding_mask)
        return mixed.to(x.dtype)


def _transform_tokens(x: Tensor, padding_mask: Tensor) -> Tensor:
    """Compute Re(F_n X F_d) = C A + S B, with F_n = C - iS and X F_d = A + iB; x: (time, batch, dim), mask: (batch, time)."""
    cos, sin = _matrices(~padding_mask, x.dtype)
    # C and S are 0 at padding, but 0 times infinity would be NaN.
    x = x.masked_fill(padding_mask.t().unsqueeze(2), 0)
    z = torch.fft.fft(x, dim=2, norm="ortho").transpose(0, 1)
    mixed: Tensor = cos @ z.real + sin @ z.imag
    return mixed.transpose(0, 1)


def _matrices(is_token: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Compute cos(2 pi j k / n) / sqrt(n) and sin(2 pi j k / n) / sqrt(n) for all tokens j and k; each (batch, time, time).

    n is the number of tokens in the sentence. Both matrices are 0 at padding.
    """
    length = is_token.sum(1).clamp(min=1)[:, None, None]
    number = is_token.cumsum(1) - 1
    # The integer remainder is exact, so the angles of the last tokens are as accurate as those of the first.
    turns = (number[:, :, None] * number[:, None, :]).remainder(length).to(dtype) / length
    scale = (is_token[:, :, None] & is_token[:, None, :]) / length.to(dtype).sqrt()
    angle = 2 * math.pi * turns
    return angle.cos() * scale, angle.sin() * scale


@register("M")
def fourier(config: SlotConfig, stack: str) -> dict[str, Sublayer]:
    return {"fourier": Fourier(config), "ffn": FeedForward(config)}

"""M: the Fourier mixing of Lee-Thorp et al., 2021 ("FNet: Mixing Tokens with Fourier Transforms"), encoder only.

Hybrids are plans. FNet's layouts of two attention layers among twelve are ``2L10M`` (bottom), ``5M2L5M`` (middle), ``10M2L``
(top, its best) and ``L5ML5M`` (mixed).
"""

import math

import torch
from torch import Tensor

from .base import Context, SlotConfig, Sublayer, register
from .feed_forward import FeedForward


class Fourier(Sublayer):
    """f(X) = Re(F_n X F_d) / sqrt(n d) for a sentence X of n words and d channels, F_n[j, k] = exp(-2 pi i j k / n).

    Without parameters, in float32 (float64 in a float64 model), zero at padding; FNet's scale without 1 / sqrt(n d) would
    multiply the variance by n d. As in FNet no dropout follows. n is the number of a sentence's own words: neither
    padding nor the rest of the batch changes what it becomes.

    A batch without padding takes two FFTs. In any other the words are transformed by a matrix of each sentence, made on the
    device from its length: no length reaches the host. That costs 4 T multiply-adds of each channel and word in a batch T
    words long, and two T x T matrices for each sentence; attention's scores and sums, two products of T by T with
    as many channels, take 2 T, and a T x T matrix for each head.
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
                mixed = _transform_words(exact, context.padding_mask)
        return mixed.to(x.dtype)


def _transform_words(x: Tensor, padding_mask: Tensor) -> Tensor:
    """Re(F_n X F_d) = C A + S B with F_n = C - iS and X F_d = A + iB.  x (time, batch, dim), mask (batch, time)"""
    cos, sin = _matrices(~padding_mask, x.dtype)
    # What stands at padding meets zeros in C and S, but 0 * inf is not 0.
    x = x.masked_fill(padding_mask.t().unsqueeze(2), 0)
    z = torch.fft.fft(x, dim=2, norm="ortho").transpose(0, 1)
    mixed: Tensor = cos @ z.real + sin @ z.imag
    return mixed.transpose(0, 1)


def _matrices(is_word: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """cos and sin of 2 pi j k / n, divided by sqrt(n), where words j and k of a sentence of n meet.  (batch, time, time)"""
    length = is_word.sum(1).clamp(min=1)[:, None, None]
    number = is_word.cumsum(1) - 1
    # The remainder is exact, so that the angle is as exact for late words as for early ones.
    turns = (number[:, :, None] * number[:, None, :]).remainder(length).to(dtype) / length
    scale = (is_word[:, :, None] & is_word[:, None, :]) / length.to(dtype).sqrt()
    angle = 2 * math.pi * turns
    return angle.cos() * scale, angle.sin() * scale


@register("M")
def fourier(config: SlotConfig, stack: str) -> dict[str, Sublayer]:
    return {"fourier": Fourier(config), "ffn": FeedForward(config)}

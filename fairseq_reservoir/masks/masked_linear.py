"""A linear layer whose weights are random and whose mask is learned."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .masked_weight import MaskedWeight


def all_rows(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """``F.linear`` of all rows of x in one product; x: (..., in_features).

    torch multiplies sentence by sentence, several times slower, where x is transposed and the weight takes no gradient, as
    at the output projection of a decoder that translates.
    """
    return F.linear(x.reshape(-1, x.shape[-1]), weight, bias).view(*x.shape[:-1], weight.shape[0])


def ordinary_linear(weight: Tensor, bias: Tensor, training: bool) -> nn.Linear:
    """``nn.Linear`` with copies of these; its weight may take a gradient: torch multiplies slowly otherwise (see ``all_rows``)."""
    rows, columns = weight.shape
    linear = nn.Linear(columns, rows, device="meta")
    linear.weight, linear.bias = nn.Parameter(weight.clone()), nn.Parameter(bias.clone())
    return linear.train(training)


class MaskedLinear(MaskedWeight):
    """y = x (g (W * M))^T; x: (..., in_features), y: (..., out_features).

    ``bias`` is a buffer of zeros that no checkpoint holds: code that reads a layer's ``weight`` and ``bias`` itself, as
    fairseq's fused attention does, finds both. See ``MaskedWeight`` for W, M, what is trained and the other arguments.
    """

    bias: Tensor

    def __init__(self, in_features: int, out_features: int, keep_ratio: float = 0.5, **options: Any) -> None:
        super().__init__(out_features, in_features, keep_ratio, **options)
        self.in_features, self.out_features = in_features, out_features
        self.register_buffer("bias", torch.zeros(out_features), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        return all_rows(x, self.weight)

    @torch.no_grad()
    def folded(self) -> nn.Linear:
        """An ordinary linear layer with the masked weight and a bias of 0."""
        return ordinary_linear(self.weight, self.bias, self.training)

    def extra_repr(self) -> str:
        return f"in_features={self.in_features}, out_features={self.out_features}, {self.choices}"

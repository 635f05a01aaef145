"""Linear layer with random weights and a learned mask."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .masked_weight import MaskedWeight


def all_rows(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """``F.linear`` with all rows of x in one product; x: (..., in_features).

    If x is transposed and the weight needs no gradient, ``F.linear`` alone multiplies one sentence at a time, which is several
    times slower. This occurs in the output projection during translation.
    """
    return F.linear(x.reshape(-1, x.shape[-1]), weight, bias).view(*x.shape[:-1], weight.shape[0])


def ordinary_linear(weight: Tensor, bias: Tensor, training: bool) -> nn.Linear:
    """Create an ``nn.Linear`` with copies of weight and bias. Both require gradients, because torch is faster then (see ``all_rows``)."""
    rows, columns = weight.shape
    linear = nn.Linear(columns, rows, device="meta")
    linear.weight, linear.bias = nn.Parameter(weight.clone()), nn.Parameter(bias.clone())
    return linear.train(training)


class MaskedLinear(MaskedWeight):
    """Masked linear layer y = x (g (W * M))^T; x: (..., in_features), y: (..., out_features).

    ``bias`` is a buffer of zeros that is not saved. It exists for code that reads a layer's ``weight`` and ``bias``, such as
    fairseq's fused attention. ``MaskedWeight`` describes W, M, g, the trained parameters and the other arguments.
    """

    bias: Tensor
    # The output is x times the transposed ``weight`` and nothing else, so that --fast can compute it slice by slice.
    is_product = True

    def __init__(self, in_features: int, out_features: int, keep_ratio: float = 0.5, **options: Any) -> None:
        super().__init__(out_features, in_features, keep_ratio, **options)
        self.in_features, self.out_features = in_features, out_features
        self.register_buffer("bias", torch.zeros(out_features), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        return all_rows(x, self.weight)

    @torch.no_grad()
    def folded(self) -> nn.Linear:
        """Return an ordinary linear layer with the masked weight and a bias of 0."""
        return ordinary_linear(self.weight, self.bias, self.training)

    def extra_repr(self) -> str:
        return f"in_features={self.in_features}, out_features={self.out_features}, {self.choices}"

"""Linear layer with random weights and a learned mask, and the base class of linear layers with a computed weight."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .masked_weight import MaskedWeight


def all_rows(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Compute ``F.linear`` with all rows of x, (..., in_features), in one product.

    If x is transposed and the weight needs no gradient, ``F.linear`` itself is several times slower, because it multiplies one sentence
    after another. In translation, the output projection has transposed inputs.
    """
    return F.linear(x.reshape(-1, x.shape[-1]), weight, bias).view(*x.shape[:-1], weight.shape[0])


class ComputedLinear(nn.Module):
    """Mix-in that turns a module with a computed ``weight`` into a linear layer y = x weight^T; x: (..., in_features).

    ``bias`` is a buffer of zeros that is not saved. It exists for code that reads a layer's ``weight`` and ``bias``, such as
    fairseq's fused attention.
    """

    bias: Tensor
    # The output is x times the transposed ``weight`` and nothing else, so that --fast can compute it slice by slice.
    is_product = True

    def __init__(self, in_features: int, out_features: int, *args: Any, **options: Any) -> None:
        super().__init__(out_features, in_features, *args, **options)
        self.in_features, self.out_features = in_features, out_features
        self.register_buffer("bias", torch.zeros(out_features), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        weight: Any = self.weight
        return all_rows(x, weight)

    @torch.no_grad()
    def folded(self) -> nn.Linear:
        """Return an ordinary linear layer that stores the computed ``weight``, and a bias of 0.

        Its parameters have requires_grad=True, because ``F.linear`` can be slower if they have not (see ``all_rows``).
        """
        weight: Any = self.weight
        linear = nn.Linear(self.in_features, self.out_features, device="meta")
        linear.weight, linear.bias = nn.Parameter(weight.clone()), nn.Parameter(self.bias.clone())
        return linear.train(self.training)

    def extra_repr(self) -> str:
        return f"in_features={self.in_features}, out_features={self.out_features}, {super().extra_repr()}"


class MaskedLinear(ComputedLinear, MaskedWeight):
    """Masked linear layer y = x (g (W * M))^T; x: (..., in_features), y: (..., out_features).

    The arguments are in_features, out_features, keep_ratio and the keyword arguments of ``MaskedWeight``. ``MaskedWeight``
    describes W, M, g and the trained parameters.
    """

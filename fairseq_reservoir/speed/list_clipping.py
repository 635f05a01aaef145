"""fairseq's gradient clipping with one operation for the norms of all gradients, instead of one for each parameter."""

from typing import Any

import torch
from fairseq import utils
from fairseq.optim import FairseqOptimizer
from torch import Tensor

from ..layers.replace import MixedIn, with_mix_in


class ListClipping(MixedIn):
    """Mix-in for an optimizer of fairseq with float32 gradients g_i.

        n = sqrt(sum_i |g_i|^2),  g_i <- g_i min(1, max_norm / (n + 10^-6)) if max_norm > 0

    The norm is equal to fairseq's up to rounding. fairseq's own function runs for other gradients.
    """

    @torch.no_grad()
    def clip_grad_norm(self, max_norm: float, aggregate_norm_fn: Any = None) -> Tensor:
        parameters = [p for p in self.params if p.grad is not None]
        gradients = [p.grad.detach() for p in parameters]
        if not _is_plain(parameters, gradients) or utils.multi_tensor_l2norm_available:
            return super().clip_grad_norm(max_norm, aggregate_norm_fn)
        norm = torch.norm(torch.stack(torch._foreach_norm(gradients, 2)))
        if aggregate_norm_fn is not None:
            norm = aggregate_norm_fn(norm)
        if max_norm > 0:
            torch._foreach_mul_(gradients, (float(max_norm) / (norm + 1e-6)).clamp_(max=1))
        return norm


def use_list_clipping(optimizer: FairseqOptimizer) -> FairseqOptimizer:
    """Return an optimizer that clips with ``ListClipping``. An optimizer that clips in its own way is returned itself."""
    usual = type(optimizer).clip_grad_norm is FairseqOptimizer.clip_grad_norm
    return with_mix_in(ListClipping, optimizer) if usual else optimizer


def _is_plain(parameters, gradients):
    kinds = {(g.device, g.dtype, g.layout) for g in gradients}
    return (
        len(gradients) > 1
        and len(kinds) == 1
        and gradients[0].dtype == torch.float32
        and gradients[0].layout == torch.strided
        and not any(hasattr(p, "expert") for p in parameters)
    )

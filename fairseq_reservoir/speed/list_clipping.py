"""fairseq's gradient clipping and scaling, with operations on the list of all gradients instead of single gradients."""

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import torch
from fairseq import utils
from fairseq.optim import FairseqOptimizer
from torch import Tensor

from ..layers.replace import MixedIn, with_mix_in
from .tensor_lists import GradientLists


class ListClipping(MixedIn):
    """Mix-in for fairseq's optimizers: clip and scale float32 gradients g_i as one list.

        n = sqrt(sum_i |g_i|^2),  g_i <- g_i min(1, max_norm / (n + 10^-6)) if max_norm > 0

    The norm equals fairseq's up to rounding. If the gradients are not all float32 on one device, fairseq's own functions run. This
    condition is checked again only if a gradient tensor has been replaced.
    """

    @cached_property
    def _lists(self) -> GradientLists:
        return GradientLists(_are_plain)

    def _plain_gradients(self) -> list[Tensor]:
        """Return the gradients of all parameters. The list is empty if they are not all float32 on one device."""
        gradients, are_plain = self._lists.get([p for group in self.param_groups for p in group["params"]])
        return gradients if are_plain else []

    @torch.no_grad()
    def clip_grad_norm(self, max_norm: float, aggregate_norm_fn: Any = None) -> Tensor:
        gradients = self._plain_gradients()
        if len(gradients) < 2 or utils.multi_tensor_l2norm_available:
            return super().clip_grad_norm(max_norm, aggregate_norm_fn)
        norm = torch.norm(torch.stack(torch._foreach_norm(gradients, 2)))
        if aggregate_norm_fn is not None:
            norm = aggregate_norm_fn(norm)
        if max_norm > 0:
            torch._foreach_mul_(gradients, (float(max_norm) / (norm + 1e-6)).clamp_(max=1))
        return norm

    @torch.no_grad()
    def multiply_grads(self, c: Any) -> None:
        gradients = self._plain_gradients()
        if not gradients:
            super().multiply_grads(c)
        else:
            torch._foreach_mul_(gradients, c.to(gradients[0].device) if torch.is_tensor(c) else c)


def use_list_clipping(optimizer: FairseqOptimizer) -> FairseqOptimizer:
    """Return an optimizer with ``ListClipping``. An optimizer that overrides clipping or scaling is returned unchanged."""
    names = "clip_grad_norm", "multiply_grads"
    usual = all(getattr(type(optimizer), name) is getattr(FairseqOptimizer, name) for name in names)
    return with_mix_in(ListClipping, optimizer) if usual else optimizer


def _are_plain(parameters: Sequence[Tensor], gradients: Sequence[Tensor]) -> bool:
    kinds = {(g.device, g.dtype, g.layout) for g in gradients}
    return (
        len(kinds) == 1
        and gradients[0].dtype == torch.float32
        and gradients[0].layout == torch.strided
        and not any([hasattr(p, "expert") for p in parameters])
    )

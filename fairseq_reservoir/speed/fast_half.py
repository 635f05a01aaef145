"""fairseq's optimizer for ``--bf16`` and ``--fp16``, with operations on lists of tensors instead of single tensors."""

from collections.abc import Callable
from functools import cached_property
from itertools import compress
from typing import Any

import torch
from fairseq.optim import FairseqOptimizer
from fairseq.optim.fp16_optimizer import FP16Optimizer
from torch import Tensor

from ..layers.replace import MixedIn, with_mix_in
from .list_clipping import use_list_clipping
from .tensor_lists import ListCopy


class FastHalf(MixedIn):
    """Mix-in for ``FP16Optimizer``, which trains float32 copies P of half-precision parameters p with gradients g.

        G <- float32(g) before the step,  P <- Adam(P, c G),  p <- half(P) after the step

    Copies and products are bit-identical to fairseq's. The norm of G equals fairseq's up to rounding. fairseq stores all P as a list, or
    with ``--fp16`` in one flat tensor. The flat tensor is split into views once. ``clip_grad_norm`` waits for the device once (``fetch``).
    With a loss scale, fairseq's function waits three times.
    """

    # Function that copies the gradient norm to the CPU.
    fetch: Callable[[Tensor], Tensor] = staticmethod(Tensor.cpu)
    _views: tuple[Any, ...] | None = None
    _pairs: tuple[Any, ...] | None = None

    @cached_property
    def _copies(self) -> tuple[ListCopy, ListCopy]:
        """Two copy operations: gradients to float32, and weights to half precision."""
        return ListCopy(), ListCopy()

    def _sync_fp16_grads_to_fp32(self):
        if not self._needs_sync:
            return
        if not self.has_flat_params:
            trained, trained32 = self._trained_pairs()
            targets = [p32.grad for p32 in trained32]
            for place, gradient in enumerate(targets):
                if gradient is None:
                    targets[place] = trained32[place].grad = torch.zeros_like(trained32[place].data)
            self._copies[0](targets, [p.grad for p in trained])
        elif (splits := self._splits()) is None:
            super()._sync_fp16_grads_to_fp32()
            return
        else:
            self._copies[0](splits[1], [p.grad for p in self.fp16_params])
        self._needs_sync = False

    def _sync_fp32_params_to_fp16(self):
        if not self.has_flat_params:
            self._copies[1](*self._trained_pairs())
        elif (splits := self._splits()) is None:
            super()._sync_fp32_params_to_fp16()
        else:
            self._copies[1](self.fp16_params, splits[0])

    def _trained_pairs(self):
        """Return the parameters that are trained at present, and their float32 copies."""
        trained = [p.requires_grad for p in self.fp16_params]
        if self._pairs is None or self._pairs[0] != trained:
            self._pairs = trained, [list(compress(every, trained)) for every in (self.fp16_params, self.fp32_params)]
        return self._pairs[1]

    def _splits(self):
        """Return (weights, gradients): views of the flat tensors, one for each parameter. None if fairseq must split these tensors.

        There are two such cases: a parameter is frozen and has no gradient, or the parameters are on several devices, and each device has
        its own flat tensor.
        """
        flats = list(self.fp32_params.values()) if isinstance(self.fp32_params, dict) else []
        if len(flats) != 1 or flats[0].grad is None or not all([p.requires_grad for p in self.fp16_params]):
            return None
        weights, gradients = flats[0], flats[0].grad
        if self._views is None or self._views[0] is not weights or self._views[1] is not gradients:
            sizes = [p.numel() for p in self.fp16_params]
            parts = [
                [part.view(p.shape) for part, p in zip(flat.data.split(sizes), self.fp16_params)]
                for flat in (weights, gradients)
            ]
            self._views = weights, gradients, parts
        return self._views[2]

    def clip_grad_norm(self, max_norm, aggregate_norm_fn=None):
        """Clip as fairseq does and return the norm as a tensor on the CPU.

        Raises:
            OverflowError: the norm is not finite, so the update must be skipped. The loss scale has been reduced.
        """
        self._sync_fp16_grads_to_fp32()
        norm = self._multiply_factor * self.fp32_optimizer.clip_grad_norm(0, aggregate_norm_fn)
        host = self.fetch(norm)
        if self.scaler is not None:
            if host > max_norm > 0.0:
                self._multiply_factor *= max_norm / norm
            self.scaler.check_overflow(host)
        elif max_norm > 0.0:
            self._multiply_factor *= (max_norm / (norm + 1e-6)).clamp_(max=1)
        return host

    def zero_grad(self):
        if self.has_flat_params:
            super().zero_grad()
            return
        for p in self.fp16_params:
            p.grad = None
        gradients = [g for g in [p32.grad for p32 in self.fp32_params] if g is not None]
        if gradients:
            torch._foreach_zero_(gradients)
        self._needs_sync = False
        if self.scaler is not None:
            self._multiply_factor = 1.0 / float(self.scaler.loss_scale)


def use_lists(optimizer: FairseqOptimizer, fetch: Callable[[Tensor], Tensor]) -> FairseqOptimizer:
    """Return an optimizer with operations on lists of tensors. It has the same state as ``optimizer``.

    With ``--memory-efficient-fp16``, ``--memory-efficient-bf16`` and ``--use-bmuf``, ``optimizer`` itself is returned.

    Args:
        optimizer: a trainer's optimizer. With ``--bf16``, ``--fp16`` and ``--amp`` it wraps an optimizer of float32 weights.
        fetch: function that copies the gradient norm to the CPU.
    """
    inner = getattr(optimizer, "fp32_optimizer", None)
    if isinstance(inner, FairseqOptimizer):
        optimizer.fp32_optimizer = use_list_clipping(inner)
    if isinstance(optimizer, FP16Optimizer):
        optimizer = with_mix_in(FastHalf, optimizer)
        optimizer.fetch = fetch
        return optimizer
    return optimizer if inner is not None else use_list_clipping(optimizer)

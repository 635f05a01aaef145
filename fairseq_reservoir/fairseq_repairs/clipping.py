"""Repair of gradient clipping on the CPU of a machine with a GPU."""

import inspect

import torch
from fairseq import utils

from .repair import repair, wrap


@repair(
    "clipping-on-cpu",
    needed=lambda: "if torch.cuda.is_available()" in inspect.getsource(inspect.unwrap(utils.clip_grad_norm_)),
)
def clip_where_the_gradients_are() -> None:
    """Clip gradients on the CPU with ``--cpu``, even if the machine has a GPU.

    If torch has a GPU, fairseq computes the clipping factor on the GPU even with ``--cpu``, and then multiplies gradients on the CPU by
    the factor. The first update with ``--clip-norm`` ends with ``RuntimeError: scalar tensor is expected to be on cpu but is on cuda:0``.
    """
    wrap(utils, "clip_grad_norm_", clip_grad_norm)


def clip_grad_norm(original, params, max_norm, aggregate_norm_fn=None):
    """Hook of ``utils.clip_grad_norm_``. If gradients are on the CPU, clip them in the same way as on a machine without a GPU."""
    params = [params] if isinstance(params, torch.Tensor) else list(params)
    trained = [p for p in params if getattr(p, "grad", None) is not None]
    shared = [p.grad.detach() for p in trained if not hasattr(p, "expert")]
    on_cpu = all(p.device.type == "cpu" for p in trained)
    if not (torch.cuda.is_available() and on_cpu and shared) or utils.multi_tensor_l2norm_available:
        return original(params, max_norm, aggregate_norm_fn)
    norms = [torch.norm(gradient, p=2, dtype=torch.float32) for gradient in shared]
    norm = norms[0] if len(norms) == 1 else torch.norm(torch.stack(norms))
    if aggregate_norm_fn is not None:
        norm = aggregate_norm_fn(norm)
    if max_norm > 0:
        experts = [p.grad.detach() for p in trained if hasattr(p, "expert")]
        torch._foreach_mul_(shared + experts, (float(max_norm) / (norm + 1e-6)).clamp_(max=1))
    return norm

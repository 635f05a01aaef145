"""A repair of clipping: on the CPU of a machine with a GPU."""

import contextlib
import inspect

import torch
from fairseq import utils

from .repair import repair, wrap


@repair(
    "clipping-on-cpu",
    needed=lambda: "if torch.cuda.is_available()" in inspect.getsource(inspect.unwrap(utils.clip_grad_norm_)),
)
def clip_where_the_gradients_are() -> None:
    """Let ``--cpu`` clip gradients where there is a GPU.

    fairseq gathers the norms on the GPU whenever torch sees one, and multiplies gradients on the CPU by what it finds there:
    ``RuntimeError: scalar tensor is expected to be on cpu but is on cuda:0``, in the first update with ``--clip-norm``.
    """
    wrap(utils, "clip_grad_norm_", clip_grad_norm)


def clip_grad_norm(original, params, max_norm, aggregate_norm_fn=None):
    """Without a gradient on a GPU, fairseq sees none."""
    params = [params] if isinstance(params, torch.Tensor) else list(params)
    on_cpu = all(p is None or p.device.type == "cpu" for p in params)
    with _no_gpu() if on_cpu else contextlib.nullcontext():
        return original(params, max_norm, aggregate_norm_fn)


@contextlib.contextmanager
def _no_gpu():
    is_available = torch.cuda.is_available
    torch.cuda.is_available = lambda: False
    try:
        yield
    finally:
        torch.cuda.is_available = is_available

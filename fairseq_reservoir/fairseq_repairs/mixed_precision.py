"""Repairs of training in half precision: gradients divided by the loss scale twice, and an overflow without a GPU."""

import contextlib
import inspect

import torch
from fairseq.optim import AMPOptimizer
from fairseq.trainer import Trainer

from .repair import repair, wrap


@repair("amp")
def unscale_once() -> None:
    """Divide gradients by the loss scale of ``--amp`` once.

    Before clipping, fairseq gives the scaler torch's optimizer to unscale; to step, it gives it the wrapper around that one. The scaler
    knows optimizers by their identity, and so divides again: SGD's steps become as many times smaller as the scale is large, Adam's
    gradients come near its eps, and its moments jump each time the scale grows.
    """
    wrap(AMPOptimizer, "step", step)


def step(original, amp):
    """Tells the scaler that the optimizer it is about to step is the one whose gradients it has unscaled."""
    # Without a GPU the scaler is switched off, and knows nothing.
    known = getattr(amp.scaler, "_per_optimizer_states", {})
    if id(amp.optimizer) in known:
        known[id(amp.fp32_optimizer)] = known.pop(id(amp.optimizer))
    return original(amp)


@repair(
    "overflow-on-cpu",
    needed=lambda: "torch.tensor(0.0).cuda()" in inspect.getsource(inspect.unwrap(Trainer.train_step)),
)
def keep_overflow_on_cpu():
    """Let a training in fp16 without a GPU go on after a gradient that overflows.

    fairseq leaves such an update out and puts its norm, a 0, on the GPU, whether there is one or not: ``AssertionError: Torch not
    compiled with CUDA enabled``, at the first overflow, which the growing loss scale brings sooner or later.
    """
    wrap(Trainer, "train_step", train_step)


def train_step(original, trainer, *args, **kwargs):
    """Without a GPU, what an update would put there stays where it is."""
    with contextlib.nullcontext() if torch.cuda.is_available() else _staying():
        return original(trainer, *args, **kwargs)


@contextlib.contextmanager
def _staying():
    cuda = torch.Tensor.cuda
    torch.Tensor.cuda = lambda tensor, *args, **kwargs: tensor
    try:
        yield
    finally:
        torch.Tensor.cuda = cuda

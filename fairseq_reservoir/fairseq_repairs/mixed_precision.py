"""Repairs of training in half precision: gradients divided by the loss scale twice, weights rounded when resuming, an overflow on CPUs."""

import contextlib
import inspect

import torch
from fairseq.optim import AMPOptimizer
from fairseq.optim.fp16_optimizer import _FP16OptimizerMixin
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
    if all(p.grad is None for group in amp.optimizer.param_groups for p in group["params"]):
        known.clear()  # it ends a training in which it finds no gradient to look at
        return amp.fp32_optimizer.step()
    if id(amp.optimizer) in known:
        known[id(amp.fp32_optimizer)] = known.pop(id(amp.optimizer))
    return original(amp)


# In an optimizer's saved state.
FP32_WEIGHTS = "fp32_weights"


@repair("fp32-weights")
def keep_fp32_weights() -> None:
    """Let a training with ``--bf16`` or ``--fp16`` go on from its fp32 weights when it is resumed.

    Both train weights in fp32 and compute with a rounded copy, and fairseq saves that copy alone: each resume rounds all weights, steps
    too small for the lower precision are lost, and the resumed training is another one. With this, the optimizer's state holds them
    too, 4 bytes a trained parameter. ``--memory-efficient-bf16`` and ``--memory-efficient-fp16`` have none.
    """
    wrap(_FP16OptimizerMixin, "state_dict", state_with_fp32_weights)
    wrap(_FP16OptimizerMixin, "load_state_dict", take_fp32_weights)


def state_with_fp32_weights(state_dict, optimizer):
    """The state with one tensor for each parameter."""
    return {**state_dict(optimizer), FP32_WEIGHTS: [weight for _, weight in _fp32_weights(optimizer)]}


def take_fp32_weights(load_state_dict, optimizer, state, optimizer_overrides=None):
    """Loads the state; a weight of the model that is not the rounded one of the state stays as it is, as in a file that was edited."""
    load_state_dict(optimizer, state, optimizer_overrides)
    for (parameter, weight), saved in zip(_fp32_weights(optimizer), state.get(FP32_WEIGHTS, ())):
        if saved.shape == weight.shape and torch.equal(saved.to(parameter), parameter):
            weight.copy_(saved)


def _fp32_weights(optimizer):
    """(parameter of the model, its fp32 weight) of each, where fairseq has those of a device in one long tensor too."""
    flat = optimizer.fp32_params
    if not optimizer.has_flat_params:
        return [(p, weight.detach()) for p, weight in zip(optimizer.fp16_params, flat)]
    found = []
    for device, whole in flat.items() if isinstance(flat, dict) else [(None, flat)]:
        parameters = [
            p for p in optimizer.fp16_params if not isinstance(flat, dict) or len(flat) == 1 or p.device.index == device
        ]
        parts = whole.detach().split([p.numel() for p in parameters])
        found += [(p, part.view_as(p)) for p, part in zip(parameters, parts)]
    return found


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

"""Repairs of half precision: gradients divided twice, fp32 weights rounded when resuming, and gradient overflows on CPUs.

The first two repairs replace an optimizer class of fairseq by a subclass. The subclass has the same name, because checkpoints store the
class name.
"""

import contextlib
import inspect
import logging

import torch
from fairseq import optim
from fairseq.logging import metrics
from fairseq.trainer import Trainer

from .repair import repair

logger = logging.getLogger(__name__)

# Entry of an optimizer's state in a checkpoint.
FP32_WEIGHTS = "fp32_weights"


@repair("amp")
def unscale_once() -> None:
    """Divide gradients by the loss scale only once with ``--amp``.

    Before clipping, fairseq passes torch's optimizer to the scaler. For the step, fairseq passes its own wrapper of the optimizer. The
    scaler treats the optimizer and the wrapper as two optimizers, and divides the gradients twice. The steps of SGD are then divided by
    the loss scale. The gradients of Adam become as small as eps, and its moments jump each time the scale grows.
    """

    class AMPOptimizer(optim.AMPOptimizer):
        def step(self):
            # Without a GPU the scaler is disabled and has no states.
            states = getattr(self.scaler, "_per_optimizer_states", {})
            if all(p.grad is None for group in self.optimizer.param_groups for p in group["params"]):
                states.clear()  # the scaler raises an error for an optimizer without gradients
                return self.fp32_optimizer.step()
            if id(self.optimizer) in states:
                states[id(self.fp32_optimizer)] = states.pop(id(self.optimizer))
            return super().step()

    optim.AMPOptimizer = AMPOptimizer


@repair("fp32-weights")
def keep_fp32_weights() -> None:
    """Resume a training with ``--bf16`` or ``--fp16`` from its fp32 weights.

    With either flag, the optimizer updates fp32 weights, and the model computes with a rounded copy. fairseq saves only the rounded copy,
    so each resume rounds all weights and loses updates that are too small for half precision. With this repair the optimizer's state
    contains the fp32 weights, 4 bytes per trained parameter. ``--memory-efficient-bf16`` and ``--memory-efficient-fp16`` have no fp32
    weights.
    """

    class FP16Optimizer(optim.FP16Optimizer):
        def state_dict(self):
            return {**super().state_dict(), FP32_WEIGHTS: [weight for _, weight in _fp32_weights(self)]}

        def load_state_dict(self, state_dict, optimizer_overrides=None):
            super().load_state_dict(state_dict, optimizer_overrides)
            for (parameter, weight), saved in zip(_fp32_weights(self), state_dict.get(FP32_WEIGHTS, ())):
                # If a user has edited the model in the checkpoint, its weights are newer than the fp32 weights.
                if saved.shape == weight.shape and torch.equal(saved.to(parameter), parameter):
                    weight.copy_(saved)

    optim.FP16Optimizer = FP16Optimizer


def _fp32_weights(optimizer):
    """Return all pairs (parameter, fp32 weight). If fairseq stores the fp32 weights of a device in one flat tensor, return views of it."""
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


class SkippedUpdate(Exception):
    """Gradient overflow on a CPU. fairseq's ``train_step`` catches ``OverflowError``, but not this exception."""


@repair(
    "overflow-on-cpu",
    needed=lambda: "torch.tensor(0.0).cuda()" in inspect.getsource(inspect.unwrap(Trainer.train_step)),
)
def keep_overflow_on_cpu():
    """Continue a training in fp16 without a GPU after a gradient overflow.

    fairseq skips an update with an overflow, and allocates a gradient norm of 0 on a GPU, even if there is no GPU. The training ends with
    ``AssertionError: Torch not compiled with CUDA enabled``. Every fp16 training on a CPU ends like this, because the loss scale grows
    until a gradient overflows. ``ReservoirTrainer`` calls the two functions below.
    """


@contextlib.contextmanager
def overflow_skips_update():
    """Context in which gradients are clipped. Without a GPU, raise ``SkippedUpdate`` in place of the scaler's ``OverflowError``."""
    try:
        yield
    except OverflowError as error:
        if not keep_overflow_on_cpu.is_applied or torch.cuda.is_available():
            raise
        raise SkippedUpdate(str(error)) from error


def skip_update(trainer, overflow: SkippedUpdate) -> None:
    """Skip an update as fairseq's ``train_step`` does, but do not allocate the gradient norm on a GPU.

    Call this inside ``metrics.aggregate("train")``.
    """
    logger.info("NOTE: gradient overflow detected, ignoring gradient, %s", overflow)
    if hasattr(trainer, "param_names") and hasattr(trainer.optimizer, "fp32_optimizer"):
        for p, name in zip(trainer.optimizer.fp32_optimizer.params, trainer.param_names):
            if torch.isinf(p.grad).any() or torch.isnan(p.grad).any():
                logger.info("overflow in param %s", name)
    trainer.zero_grad()
    metrics.log_scalar("loss_scale", trainer.optimizer.scaler.loss_scale, priority=700, round=4, weight=0)
    metrics.log_stop_time("train_wall")
    # The exception has left fairseq's ``metrics.aggregate("train")`` open, because this context manager has no ``finally``.
    metrics._active_aggregators_cnt["train"] -= 1

"""Skip the backward pass of a loss that depends on no trained parameter."""

import functools
import logging
from collections.abc import Callable
from typing import Any

from fairseq.optim import FairseqOptimizer
from fairseq.optim.amp_optimizer import AMPOptimizer
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

logger = logging.getLogger(__name__)


def skip_backward_without_gradient(trainer) -> None:
    """Let the optimizer of a trainer skip the backward pass of a loss without a gradient. Call it whenever the optimizer is built.

    torch would raise an error. Such a loss exists when LayerDrop leaves out every trained layer and all else is frozen, or while a
    freeze schedule freezes everything else. The first one is logged, because a criterion that detaches its loss has one in every update.
    """
    optimizer = trainer._optimizer
    while isinstance(getattr(optimizer, "_optimizer", None), FairseqOptimizer):  # inside that of --use-bmuf
        optimizer = optimizer._optimizer
    wrapped = getattr(trainer.model, "module", None)  # fairseq's wrapper has torch's inside
    advice = (
        "; if this happens on one rank only, the others wait for it: give --ddp-backend legacy_ddp"
        if isinstance(wrapped, DistributedDataParallel)
        else ""
    )
    optimizer.backward = functools.partial(_backward, optimizer, optimizer.backward, advice)


def _backward(optimizer: Any, backward: Callable[[Tensor], None], advice: str, loss: Tensor) -> None:
    if loss.requires_grad:
        backward(loss)
        return
    # With --bf16 and --fp16 this rank still has to add the gradients of the other ranks.
    if hasattr(optimizer, "_needs_sync"):
        optimizer._needs_sync = True
    if isinstance(optimizer, AMPOptimizer):
        optimizer.scaler.scale(loss)  # unscaling raises an error if nothing has been scaled
    if not vars(optimizer).setdefault("has_logged_nothing_to_train", False):
        optimizer.has_logged_nothing_to_train = True
        logger.warning(
            "the loss of a batch depends on no trained parameter (LayerDrop, a freeze schedule, or a criterion that detaches it):"
            " its gradient is 0; this is logged once%s",
            advice,
        )

"""Skip the backward pass of a loss that does not depend on any trained parameter."""

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
    """Make a trainer's optimizer skip the backward pass of a loss without a gradient. Call this whenever the optimizer is built.

    torch would raise an error in this backward pass. A loss has no gradient if LayerDrop skips every trained layer and all other parameters
    are frozen. Only the first loss without a gradient is logged, because a criterion that detaches its loss would cause a warning in every
    update.
    """
    optimizer = trainer._optimizer
    while isinstance(getattr(optimizer, "_optimizer", None), FairseqOptimizer):  # --use-bmuf wraps the optimizer
        optimizer = optimizer._optimizer
    wrapped = getattr(trainer.model, "module", None)  # fairseq's wrapper contains torch's
    advice = (
        "; if only some ranks skip the backward pass, the other ranks wait for the missing gradients; give --ddp-backend legacy_ddp"
        if isinstance(wrapped, DistributedDataParallel)
        else ""
    )
    optimizer.backward = functools.partial(_backward, optimizer, optimizer.backward, advice)


def _backward(optimizer: Any, backward: Callable[[Tensor], None], advice: str, loss: Tensor) -> None:
    if loss.requires_grad:
        backward(loss)
        return
    # With --bf16 and --fp16 the optimizer must still copy the reduced gradients of the other ranks to its fp32 gradients.
    if hasattr(optimizer, "_needs_sync"):
        optimizer._needs_sync = True
    if isinstance(optimizer, AMPOptimizer):
        optimizer.scaler.scale(loss)  # unscaling raises an error if nothing has been scaled
    if not vars(optimizer).setdefault("has_logged_nothing_to_train", False):
        optimizer.has_logged_nothing_to_train = True
        logger.warning(
            "the loss of a batch does not depend on any trained parameter, so its gradient is 0; possible causes are LayerDrop, a freeze"
            " schedule, or a criterion that detaches the loss; this warning is logged once%s",
            advice,
        )

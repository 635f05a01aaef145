"""Updates whose loss depends on nothing that is trained."""

import logging

from fairseq.optim import AMPOptimizer
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

logger = logging.getLogger(__name__)


def note_backend(trainer) -> None:
    """Set the advice of the warning below: with torch's DistributedDataParallel a rank waits for gradients that another may not have."""
    wrapped = getattr(trainer.model, "module", None)  # fairseq's wrapper has torch's inside
    if isinstance(wrapped, DistributedDataParallel):
        trainer._optimizer.of_several_processes = (
            "; if it is so in one process alone, the others wait for it, or end: give --ddp-backend legacy_ddp"
        )


def leave_out_backward(backward, optimizer, loss: Tensor) -> None:
    """A hook of the optimizers' ``backward``: the gradient of such a loss is 0, so that nothing is to be done.

    LayerDrop makes one where it leaves out every layer that is trained, and embeddings and all else are frozen; so may a freeze
    schedule beside it. torch would end the training there. The log says so the first time, since a criterion that detaches its loss
    would be such a one in every update.
    """
    if loss.requires_grad:
        backward(optimizer, loss)
        return
    # Of --bf16 and --fp16: other processes may have gradients, which are added up in this one too.
    if hasattr(optimizer, "_needs_sync"):
        optimizer._needs_sync = True
    if isinstance(optimizer, AMPOptimizer):
        optimizer.scaler.scale(loss)  # which must have been asked once before it looks at gradients
    if not vars(optimizer).setdefault("said_nothing_to_train", False):
        optimizer.said_nothing_to_train = True
        logger.warning(
            "the loss of a batch depends on nothing that is trained (LayerDrop, a freeze schedule, or a criterion that detaches it):"
            " its gradient is 0; further ones are not named%s",
            getattr(optimizer, "of_several_processes", ""),
        )

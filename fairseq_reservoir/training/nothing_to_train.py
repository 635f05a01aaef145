"""Updates whose loss depends on nothing that is trained."""

from torch import Tensor


def leave_out_backward(backward, optimizer, loss: Tensor) -> None:
    """A hook of the optimizers' ``backward``: the gradient of such a loss is 0, so that nothing is to be done.

    LayerDrop makes one where it leaves out every layer that is trained, and embeddings and all else are frozen; so may a freeze
    schedule beside it. torch would end the training there.
    """
    if loss.requires_grad:
        backward(optimizer, loss)

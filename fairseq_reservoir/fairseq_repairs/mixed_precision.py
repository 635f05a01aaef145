"""A repair of ``--amp``: gradients that were divided by the loss scale twice."""

from fairseq.optim import AMPOptimizer

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
    known = getattr(
        amp.scaler, "_per_optimizer_states", {}
    )  # without a GPU the scaler is switched off, and knows nothing
    if id(amp.optimizer) in known:
        known[id(amp.fp32_optimizer)] = known.pop(id(amp.optimizer))
    return original(amp)

"""fairseq's Adam with one pass over its tensors instead of eight."""

import math

import torch
from fairseq.optim import FairseqOptimizer
from fairseq.optim.adam import Adam

from ..layers.replace import adopt


class FastAdam(Adam):
    """fairseq's ``Adam`` in one pass, with the same update up to rounding and the same state in checkpoints.

    Step t updates a parameter p with gradient g and moments m and v. b1 and b2 are the betas, lr the learning rate, wd the weight decay.

        m <- b1 m + (1 - b1) g,  v <- b2 v + (1 - b2) g^2,  p <- p - lr wd p - lr sqrt(1 - b2^t) / (1 - b1^t) m / (sqrt(v) + eps)

    torch's fused kernel divides by sqrt(v / (1 - b2^t)) + eps' instead. The update is the same with eps' = eps / sqrt(1 - b2^t).
    fairseq's own step runs if a parameter is not float32, with amsgrad, and for sparse gradients.
    """

    def step(self, closure=None):
        trained = [(group, [p for p in group["params"] if p.grad is not None]) for group in self.param_groups]
        if not all(_is_plain(group, p) for group, parameters in trained for p in parameters):
            return super().step(closure)
        loss = None if closure is None else closure()
        for group, parameters in trained:
            self._update(group, parameters)
        return loss

    @torch.no_grad()
    def _update(self, group, parameters):
        groups = {}  # the fused kernel gets tensors of one device and one step number
        for p in parameters:
            state = self.state[p]
            if not state:
                state.update(step=0, exp_avg=torch.zeros_like(p), exp_avg_sq=torch.zeros_like(p))
            state["step"] += 1
            groups.setdefault((p.device, state["step"]), []).append(p)
        for (device, step), members in groups.items():
            states = [self.state[p] for p in members]
            means, squares = (
                [state[name].to(p) for p, state in zip(members, states)] for name in ("exp_avg", "exp_avg_sq")
            )
            for state, mean, square in zip(states, means, squares):
                state["exp_avg"], state["exp_avg_sq"] = mean, square
            beta1, beta2 = group["betas"]
            torch._fused_adamw_(
                members,
                [p.grad for p in members],
                means,
                squares,
                [],
                [torch.full((), float(step), device=device)] * len(members),
                lr=group["lr"],
                beta1=beta1,
                beta2=beta2,
                weight_decay=group["weight_decay"],
                eps=group["eps"] / math.sqrt(1 - beta2**step),
                amsgrad=False,
                maximize=False,
            )


def use_fast_adam(optimizer) -> None:
    """Replace the ``Adam`` inside one of fairseq's optimizers by a ``FastAdam``. Other optimizers are kept."""
    while isinstance(getattr(optimizer, "_optimizer", None), FairseqOptimizer):  # --use-bmuf wraps an optimizer
        optimizer = optimizer._optimizer
    if type(optimizer.optimizer) is Adam:
        optimizer.optimizer = adopt(FastAdam, optimizer.optimizer)


def _is_plain(group, p):
    dense = p.grad.layout == torch.strided and p.is_contiguous() and p.grad.is_contiguous()
    return dense and p.dtype == p.grad.dtype == torch.float32 and not group.get("amsgrad")

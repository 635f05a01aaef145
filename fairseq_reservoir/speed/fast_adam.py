"""fairseq's Adam in one pass over all tensors. fairseq needs eight passes."""

import math

import torch
from fairseq.optim import FairseqOptimizer
from fairseq.optim.adam import Adam

from ..layers.replace import adopt
from .tensor_lists import GradientLists, same


class FastAdam(Adam):
    """fairseq's ``Adam`` in one pass. The updates, and the state in checkpoints, equal fairseq's up to rounding.

    Step t updates a parameter p with gradient g and moments m and v. b1 and b2 are the betas, lr the learning rate, wd the weight decay.

        m <- b1 m + (1 - b1) g,  v <- b2 v + (1 - b2) g^2,  p <- p - lr wd p - lr sqrt(1 - b2^t) / (1 - b1^t) m / (sqrt(v) + eps)

    torch's fused kernel divides by sqrt(v / (1 - b2^t)) + eps'. With eps' = eps / sqrt(1 - b2^t), the update is the same. fairseq's own
    step runs if amsgrad is enabled, if a gradient is sparse, or if a parameter is not float32. The lists of tensors that the kernel gets
    are cached until a gradient or the state of a parameter is replaced.
    """

    _groups: "tuple[_Group, ...]" = ()
    _states: tuple[dict, ...] = ()  # the state of each parameter after the last step

    def step(self, closure=None):
        loss = None if closure is None else closure()
        if len(self._groups) != len(self.param_groups):
            self._groups = tuple(_Group() for _ in self.param_groups)
        found = [kept.gradients.get(group["params"]) for kept, group in zip(self._groups, self.param_groups)]
        if any(group.get("amsgrad") for group in self.param_groups) or not all(one.are_plain for _, one in found):
            super().step()
            return loss
        if not same(tuple(self.state.values()), self._states):  # as after loading a state, or freezing a parameter
            self._groups = tuple(_Group(kept.gradients) for kept in self._groups)
        for group, kept, (gradients, one) in zip(self.param_groups, self._groups, found):
            self._update(group, gradients, kept.batches_of(one, self.state))
        self._states = tuple(self.state.values())
        return loss

    @torch.no_grad()
    def _update(self, group, gradients, batches):
        beta1, beta2 = group["betas"]
        for batch in batches:
            for state in batch.states:
                state["step"] += 1
            step = batch.states[0]["step"]
            torch._fused_adamw_(
                batch.parameters,
                [gradients[place] for place in batch.places],
                batch.means,
                batch.squares,
                [],
                [torch.full((), float(step), device=batch.device)] * len(batch.places),
                lr=group["lr"],
                beta1=beta1,
                beta2=beta2,
                weight_decay=group["weight_decay"],
                eps=group["eps"] / math.sqrt(1 - beta2**step),
                amsgrad=False,
                maximize=False,
            )


def use_fast_adam(optimizer) -> None:
    """Replace the ``Adam`` inside a fairseq optimizer by a ``FastAdam``. Optimizers without ``Adam`` are not changed."""
    while isinstance(getattr(optimizer, "_optimizer", None), FairseqOptimizer):  # --use-bmuf wraps an optimizer
        optimizer = optimizer._optimizer
    if type(optimizer.optimizer) is Adam:
        optimizer.optimizer = adopt(FastAdam, optimizer.optimizer)


class _Found:
    """The parameters of a group that have a gradient, their devices, and whether the fused kernel supports the parameters and gradients."""

    def __init__(self, parameters, gradients):
        self.parameters = parameters
        self.devices = [p.device for p in parameters]
        self.are_plain = _are_plain(parameters) and _are_plain(gradients)


class _Group:
    """The cached lists of tensors of one parameter group."""

    def __init__(self, gradients=None):
        self.gradients = gradients or GradientLists(_Found)
        self._parameters, self._devices, self._batches = [], [], []

    def batches_of(self, found, states):
        """Return one batch for each pair of device and step number, because one call of the fused kernel supports only one pair."""
        known = same(found.parameters, self._parameters) and found.devices == self._devices
        if not (known and all(batch.is_current() for batch in self._batches)):
            self._parameters, self._devices = found.parameters, found.devices
            self._batches = _batches(found, states)
        return self._batches


class _Batch:
    """Parameters with the same device and step number, their state, and their indices among the parameters with a gradient."""

    def __init__(self, places, parameters, states):
        self.places = places
        self.parameters = [parameters[place] for place in places]
        self.device = self.parameters[0].device
        self.states = [states[p] for p in self.parameters]
        for p, state in zip(self.parameters, self.states):
            state["exp_avg"], state["exp_avg_sq"] = state["exp_avg"].to(p), state["exp_avg_sq"].to(p)
        self.means, self.squares = ([state[name] for state in self.states] for name in ("exp_avg", "exp_avg_sq"))

    def is_current(self):
        """Whether the parameters' states still contain the listed tensors, and all states have the same step number."""
        steps = [state["step"] for state in self.states]
        return (
            steps.count(steps[0]) == len(steps)
            and same([state["exp_avg"] for state in self.states], self.means)
            and same([state["exp_avg_sq"] for state in self.states], self.squares)
        )


def _batches(found, states):
    places = {}
    for place, (p, device) in enumerate(zip(found.parameters, found.devices)):
        state = states[p]
        if not state:
            state.update(step=0, exp_avg=torch.zeros_like(p), exp_avg_sq=torch.zeros_like(p))
        places.setdefault((device, state["step"]), []).append(place)
    return [_Batch(members, found.parameters, states) for members in places.values()]


def _are_plain(tensors):
    return all([t.layout is torch.strided and t.dtype is torch.float32 and t.is_contiguous() for t in tensors])

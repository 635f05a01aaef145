"""Backskipping: estimators of a frozen layer's input gradient. They replace the backward pass of the layer.

A layer computes y from x, L is the loss, and an estimator estimates dL/dx. Shen et al. (2021) describe the idea, but published no
code. The docstring of each estimator lists our own choices.

A random draw decides whether an update computes the true backward pass of a layer. The draw depends on the seed, the layer's
name and the number of the update, so all ranks, accumulated batches and recomputed layers make the same decision.
"""

import functools
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from ...random_tensors import philox
from ...random_tensors.tensors import drawn
from .least_squares import LeastSquares

WARMUP_UPDATES = 100  # the default of --backskip-warmup
_HIDDEN = 64


class Identity(nn.Module):
    """Straight-through estimator dL/dx ~ g, with g = dL/dy. Nothing is fitted."""

    needs_true = False  # whether the estimator learns from true gradients

    def __init__(self, name: str, width: int, seed: int):
        super().__init__()

    def perturb(self, x: Tensor, seed: int) -> tuple[Tensor, None]:
        return x, None

    def estimate(self, x: Tensor, noise: None, g: Tensor) -> Tensor:
        return g

    def learn(self, x: Tensor, g: Tensor, true: Tensor | None) -> None:
        pass


class Synthetic(Identity):
    """Linear estimator dL/dx ~ g + W g, with g = dL/dy.

    In updates with a true backward pass, ``LeastSquares`` fits W (width, width), so that W g approximates dL/dx - g. A loss scale
    has no effect, because the estimate is linear in g. This estimator is ours. Its name comes from synthetic gradients (Jaderberg et
    al., 2017), which are predicted from activations instead of g.
    """

    needs_true = True

    def __init__(self, name: str, width: int, seed: int):
        super().__init__(name, width, seed)
        self.rest = LeastSquares(width, width)

    def estimate(self, x: Tensor, noise: None, g: Tensor) -> Tensor:
        return g + self.rest.predict(g)

    def learn(self, x: Tensor, g: Tensor, true: Tensor | None) -> None:
        assert true is not None  # because needs_true is set
        width = g.shape[-1]
        self.rest.add(g.reshape(-1, width), (true - g).reshape(-1, width))


class Reinforce(nn.Module):
    """REINFORCE estimator dL/dx ~ -(R - V(x)) e / s. The policy has the mean x, and its action is x + s e with noise e ~ N(0, 1).

    As in the paper, the return R of a token is the mean of -dL/dy over channels, and V is a value network that is fitted to R by
    squared error. Three choices are ours. V is fitted to R / RMS(R), where the RMS is over the batch, so a loss scale has no effect. V has
    a frozen random hidden layer of 64 tanh units and a least-squares output layer. s is 0.1, because the output of a LayerNorm
    has RMS 1. The noise e has its own generator, seeded by ``Backskip.noise_seed``.
    """

    needs_true = False  # the return needs only dL/dy
    noise = 0.1
    hidden: Tensor

    def __init__(self, name: str, width: int, seed: int):
        super().__init__()
        bound = math.sqrt(3 / width)
        self.register_buffer(
            "hidden", drawn(philox.uniform, seed, f"{name}.backskip.hidden", (_HIDDEN, width), bound), persistent=False
        )
        self.value = LeastSquares(_HIDDEN + 1, 1)

    def perturb(self, x: Tensor, seed: int) -> tuple[Tensor, Tensor]:
        generator = torch.Generator(x.device).manual_seed(seed)
        noise = torch.randn(x.shape, generator=generator, device=x.device, dtype=torch.float32).to(x.dtype)
        return x + self.noise * noise, noise

    def estimate(self, x: Tensor, noise: Tensor, g: Tensor) -> Tensor:
        returns, size = self._returns(g)
        advantage = returns - self.value.predict(self._features(x)).squeeze(-1)
        advantage = advantage.masked_fill(~_real_tokens(g), 0)
        estimate: Tensor = -(size / self.noise) * advantage.unsqueeze(-1) * noise.float()
        return estimate.to(g.dtype)

    def learn(self, x: Tensor, g: Tensor, true: Tensor | None) -> None:
        returns, _ = self._returns(g)
        self.value.add(self._features(x).flatten(0, -2), returns.reshape(-1, 1), _real_tokens(g).flatten())

    def _returns(self, g: Tensor) -> tuple[Tensor, Tensor]:
        returns = -g.float().mean(-1)
        size = (returns.square().sum() / _real_tokens(g).sum().clamp(min=1)).sqrt()
        return returns / size.clamp(min=torch.finfo(torch.float32).tiny), size

    def _features(self, x: Tensor) -> Tensor:
        hidden = torch.tanh(x.float() @ self.hidden.float().t())
        return torch.cat([hidden, hidden.new_ones(*hidden.shape[:-1], 1)], -1)


def _real_tokens(g: Tensor) -> Tensor:
    """Mask of real tokens. Padding and fairseq's dummy batches have zero gradient."""
    return g.any(-1)


ESTIMATORS: dict[str, type[nn.Module]] = {"synthetic": Synthetic, "reinforce": Reinforce, "identity": Identity}


class Backskip(nn.Module):
    """Estimator of a layer's input gradient. In each update, it chooses between the true and the estimated backward pass.

    Args:
        kind: key of ``ESTIMATORS``.
        name: name of the layer, such as ``encoder.layers.1``.
        width: width of the layer.
        seed: seed of the choices and of the estimator.
        anneal, warmup: the probability of a true backward pass is 1 in the first ``warmup`` updates. Afterwards it is ``anneal``,
            ``anneal``^2, ...
    """

    def __init__(self, kind: str, name: str, width: int, seed: int, anneal: float, warmup: int = 0):
        super().__init__()
        self.estimator: Any = ESTIMATORS[kind](name, width, seed)
        self.name, self.seed, self.anneal, self.warmup, self.update = name, seed, anneal, warmup, 0
        self.draws = 0
        self.cosine: Tensor | None = None

    @property
    def is_true(self) -> bool:
        """Whether this update uses the true backward pass."""
        drawn = int(philox.words(self.seed, f"{self.name}.backskip/{self.update}", 1)[0])
        return drawn < self.anneal ** max(0, self.update - self.warmup + 1) * 2**32

    def begin_update(self) -> None:
        """Restart the sequence of noise seeds before an update. An update that is repeated after an overflow has the same seeds."""
        self.draws = 0

    def noise_seed(self) -> int:
        """Return the noise seed of the next batch. Each batch on each rank has a different seed."""
        distributed = torch.distributed.is_available() and torch.distributed.is_initialized()
        rank = torch.distributed.get_rank() if distributed else 0
        self.draws += 1
        return int(philox.words(self.seed, f"{self.name}.backskip.noise/{self.update}/{rank}/{self.draws}", 1)[0])

    def set_num_updates(self, num_updates: int) -> None:
        """End an update and refit the estimator. All ranks call this after every update."""
        if num_updates == self.update:
            return
        # solve() sums over all ranks. So every rank must call it, even if LayerDrop has dropped the layer there.
        learned = num_updates == self.update + 1 and (self.is_true or not self.estimator.needs_true)
        self.update = num_updates
        if learned:
            for module in self.estimator.children():
                module.solve()

    def observe(self, x: Tensor, g: Tensor, true: Tensor) -> None:
        """Store the cosine between a true gradient and its estimate, and let the estimator learn from the true gradient."""
        _, noise = self.estimator.perturb(x, self.noise_seed())
        estimate = self.estimator.estimate(x, noise, g)
        self.cosine = torch.cosine_similarity(estimate.float().flatten(), true.float().flatten(), 0)
        self.estimator.learn(x, g, true)


class _Leave(torch.autograd.Function):
    """Identity function on the output of a layer with a true backward pass. Its backward pass stores dL/dy."""

    @staticmethod
    def forward(ctx: Any, y: Tensor, kept: dict[str, Tensor]) -> Tensor:
        ctx.kept = kept
        return y.view_as(y)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None]:
        ctx.kept["g"] = g
        return g, None


class _Enter(torch.autograd.Function):
    """Identity function on the input of a layer with a true backward pass. Its backward pass calls ``Backskip.observe`` with dL/dx."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, kept: dict[str, Tensor], skip: Backskip) -> Tensor:
        ctx.kept, ctx.skip = kept, skip
        ctx.save_for_backward(x)
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, true: Tensor) -> tuple[Tensor, None, None]:
        if "g" in ctx.kept:
            ctx.skip.observe(*ctx.saved_tensors, ctx.kept.pop("g"), true)
        return true, None, None


class _Skip(torch.autograd.Function):
    """Return y = layer(x), which was computed without a graph. The backward pass returns the estimate of dL/dx."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor, noise: Tensor | None, skip: Backskip) -> Tensor:
        ctx.skip, ctx.noise = skip, noise
        ctx.save_for_backward(x)
        return y.view_as(y)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None, None, None]:
        (x,) = ctx.saved_tensors
        estimator = ctx.skip.estimator
        estimate = estimator.estimate(x, ctx.noise, g)
        if not estimator.needs_true:
            estimator.learn(x, g, None)
        return estimate, None, None, None


def skipping_backward(layer: nn.Module, skip: Backskip) -> None:
    """Make a frozen layer use ``skip`` in training.

    x is the layer's first argument. y is the returned tensor, or the first element of the returned tuple. ``skip`` is not
    registered as a submodule, because some layers run all their submodules.
    """
    layer.forward = functools.partial(_forward, skip, layer.forward)


def _forward(skip: Backskip, forward: Callable[..., Any], x: Tensor, *args: Any, **kwargs: Any) -> Any:
    if not (skip.training and torch.is_grad_enabled() and x.requires_grad):
        return forward(x, *args, **kwargs)
    if skip.is_true:
        kept: dict[str, Tensor] = {}
        return _on_first(forward(_Enter.apply(x, kept, skip), *args, **kwargs), lambda y: _Leave.apply(y, kept))  # type: ignore[no-untyped-call]  # torch's
    with torch.no_grad():
        action, noise = skip.estimator.perturb(x, skip.noise_seed())
        result = forward(action, *args, **kwargs)
    return _on_first(result, lambda y: _Skip.apply(x, y, noise, skip))  # type: ignore[no-untyped-call]  # torch's


def _on_first(result: Any, function: Callable[[Tensor], Tensor]) -> Any:
    return (function(result[0]), *result[1:]) if isinstance(result, tuple) else function(result)

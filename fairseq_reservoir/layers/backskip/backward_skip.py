"""Backskipping: the backward pass through a frozen layer is left out, and the layer below gets an estimated gradient.

Shen et al. (2021) describe the idea and no code of theirs is public; what follows from their description and what is our
choice is said at each estimator. Whether an update is a true one is drawn from the seed, the layer's name and the update's
number, so that all processes, accumulated batches and recomputed layers draw alike.
"""

import functools
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from ...random_tensors import philox
from .least_squares import LeastSquares

# What a model calls its backskips; their names in its checkpoints begin with it.
NAME = "backskips"
WARMUP_UPDATES = 100  # the default of --backskip-warmup
_HIDDEN = 64


class Identity(nn.Module):
    """dL/dx ~ g for g = dL/dy, as if the layer handed on its input: the straight-through estimator, which learns nothing."""

    needs_true = False  # to learn from

    def __init__(self, name: str, width: int, seed: int):
        super().__init__()

    def perturb(self, x: Tensor, seed: int) -> tuple[Tensor, None]:
        return x, None

    def estimate(self, x: Tensor, noise: None, g: Tensor) -> Tensor:
        return g

    def learn(self, x: Tensor, g: Tensor, true: Tensor | None) -> None:
        pass


class Synthetic(Identity):
    """dL/dx ~ g + W g for g = dL/dy: exact where the layer adds nothing to x, and W is a regression of the rest on g.

    W (width x width) is fitted to true gradients while there are any; see ``LeastSquares``. It scales with g, so a loss scale
    changes nothing. Ours; the name is that of synthetic gradients (Jaderberg et al., 2017), which predict from activations.
    """

    needs_true = True

    def __init__(self, name: str, width: int, seed: int):
        super().__init__(name, width, seed)
        self.rest = LeastSquares(width, width)

    def estimate(self, x: Tensor, noise: None, g: Tensor) -> Tensor:
        return g + self.rest.predict(g)

    def learn(self, x: Tensor, g: Tensor, true: Tensor | None) -> None:
        assert true is not None  # as ``needs_true`` says
        width = g.shape[-1]
        self.rest.add(g.reshape(-1, width), (true - g).reshape(-1, width))


class Reinforce(nn.Module):
    """dL/dx ~ -(R - V(x)) e / s: the layer's input is a policy's mean, and x + s e, e ~ N(0, 1), the action that it took.

    As in the paper, the return R of a word is the mean over channels of -dL/dy, and V is a value network fitted to R by squared
    error. Ours: R is taken relative to its root mean square in the batch, so that a loss scale cancels; V is a frozen random hidden
    layer of 64 tanh units and a least-squares readout; s is 0.1, since noise of size 1 is as large as what a LayerNorm lets through.
    The noise has a generator of its own; see ``Backskip.noise_seed``.
    """

    needs_true = False  # its return is known without
    noise = 0.1
    hidden: Tensor

    def __init__(self, name: str, width: int, seed: int):
        super().__init__()
        bound = math.sqrt(3 / width)
        self.register_buffer(
            "hidden", philox.uniform(seed, f"{name}.backskip.hidden", (_HIDDEN, width), bound), persistent=False
        )
        self.value = LeastSquares(_HIDDEN + 1, 1)

    def perturb(self, x: Tensor, seed: int) -> tuple[Tensor, Tensor]:
        generator = torch.Generator(x.device).manual_seed(seed)
        noise = torch.randn(x.shape, generator=generator, device=x.device, dtype=torch.float32).to(x.dtype)
        return x + self.noise * noise, noise

    def estimate(self, x: Tensor, noise: Tensor, g: Tensor) -> Tensor:
        returns, size = self._returns(g)
        advantage = returns - self.value.predict(self._features(x)).squeeze(-1)
        advantage = advantage.masked_fill(~_words(g), 0)
        estimate: Tensor = -(size / self.noise) * advantage.unsqueeze(-1) * noise.float()
        return estimate.to(g.dtype)

    def learn(self, x: Tensor, g: Tensor, true: Tensor | None) -> None:
        returns, _ = self._returns(g)
        self.value.add(self._features(x).flatten(0, -2), returns.reshape(-1, 1), _words(g).flatten())

    def _returns(self, g: Tensor) -> tuple[Tensor, Tensor]:
        returns = -g.float().mean(-1)
        size = (returns.square().sum() / _words(g).sum().clamp(min=1)).sqrt()
        return returns / size.clamp(min=torch.finfo(torch.float32).tiny), size

    def _features(self, x: Tensor) -> Tensor:
        hidden = torch.tanh(x.float() @ self.hidden.float().t())
        return torch.cat([hidden, hidden.new_ones(*hidden.shape[:-1], 1)], -1)


def _words(g: Tensor) -> Tensor:
    """Where there are words: padding, and fairseq's batches that make up for missing ones, have no gradient and no return."""
    return g.any(-1)


ESTIMATORS: dict[str, type[nn.Module]] = {"synthetic": Synthetic, "reinforce": Reinforce, "identity": Identity}


class Backskip(nn.Module):
    """The backward pass of a layer in training: its true one, from which the estimator learns, or an estimate instead of it.

    Args:
        kind: key of ``ESTIMATORS``.
        name: the layer's, such as ``encoder.layers.1``.
        width: of the layer.
        seed: of the draw of true updates, and of what is random in the estimator.
        anneal, warmup: the probability of a true update is 1 in the first ``warmup`` updates, then anneal, anneal^2, ...
    """

    def __init__(self, kind: str, name: str, width: int, seed: int, anneal: float, warmup: int = 0):
        super().__init__()
        self.estimator: Any = ESTIMATORS[kind](name, width, seed)
        self.name, self.seed, self.anneal, self.warmup, self.update = name, seed, anneal, warmup, 0
        self.draws = 0
        self.cosine: Tensor | None = None

    @property
    def is_true(self) -> bool:
        """Whether this update takes the true backward pass."""
        drawn = int(philox.words(self.seed, f"{self.name}.backskip/{self.update}", 1)[0])
        return drawn < self.anneal ** max(0, self.update - self.warmup + 1) * 2**32

    def begin_update(self) -> None:
        """fairseq's trainer calls this before the batches of an update, also where it takes the place of one that overflowed."""
        self.draws = 0

    def noise_seed(self) -> int:
        """Another one for each batch of an update and each process, unlike ``is_true``; torch's generators are left alone."""
        distributed = torch.distributed.is_available() and torch.distributed.is_initialized()
        rank = torch.distributed.get_rank() if distributed else 0
        self.draws += 1
        return int(philox.words(self.seed, f"{self.name}.backskip.noise/{self.update}/{rank}/{self.draws}", 1)[0])

    def set_num_updates(self, num_updates: int) -> None:
        """fairseq's trainer calls this after every update, on all processes."""
        if num_updates == self.update:
            return
        # All processes have to say the same, also those in which LayerDrop left the layer out.
        learned = num_updates == self.update + 1 and (self.is_true or not self.estimator.needs_true)
        self.update = num_updates
        if learned:
            for module in self.estimator.children():
                module.solve()

    def observe(self, x: Tensor, g: Tensor, true: Tensor) -> None:
        """Learns from a true gradient, and keeps the cosine between it and the estimate of before."""
        self.cosine = self._cosine(x, g, true)
        self.estimator.learn(x, g, true)

    def _cosine(self, x: Tensor, g: Tensor, true: Tensor) -> Tensor:
        _, noise = self.estimator.perturb(x, self.noise_seed())
        estimate = self.estimator.estimate(x, noise, g)
        return torch.cosine_similarity(estimate.float().flatten(), true.float().flatten(), 0)


class _Leave(torch.autograd.Function):
    """y -> y, above a true layer: keeps dL/dy."""

    @staticmethod
    def forward(ctx: Any, y: Tensor, kept: dict[str, Tensor]) -> Tensor:
        ctx.kept = kept
        return y.view_as(y)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None]:
        ctx.kept["g"] = g
        return g, None


class _Enter(torch.autograd.Function):
    """x -> x, below a true layer: dL/dx arrives after dL/dy, and the estimator learns from both."""

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
    """x -> y = layer(x), computed without a graph; dL/dx is the estimator's."""

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
    """Lets a frozen layer use ``skip`` in training, which becomes no part of it: some layers are the sum of their parts.

    The layer's input is its first argument, its output the result or the first of it.
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

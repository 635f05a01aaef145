"""Skip work that fairseq repeats in every update. This work takes milliseconds in Python, and the GPU is idle during this time."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Self

import torch
from fairseq.models import BaseFairseqModel, FairseqEncoder
from omegaconf import DictConfig
from torch import nn

from ..layers.replace import MixedIn, with_mix_in

# These functions only call ``set_num_updates`` of submodules.
_CALLERS = BaseFairseqModel.set_num_updates, FairseqEncoder.set_num_updates


class ShortUpdates(MixedIn):
    """Mix-in for a model: avoid loops over all modules in every update.

    ``train()`` does nothing if the model is already in the requested mode, because all modules of a model change their mode together.
    ``set_num_updates`` calls only the modules that use the number. These modules are collected once.
    """

    _counting: list[Callable[[int], None]] | None = None

    def train(self, mode: bool = True) -> Self:
        if mode == self.training:
            return self
        result: Self = super().train(mode)
        return result

    def set_num_updates(self, num_updates: int) -> None:
        if self._counting is None:
            self._counting = [
                module.set_num_updates
                for module in self.modules()
                if module is not self and hasattr(module, "set_num_updates") and not _only_calls(module)
            ]
        for set_number in self._counting:
            set_number(num_updates)


def _only_calls(module):
    return getattr(type(module), "set_num_updates", None) in _CALLERS


def shorten_updates(model: nn.Module) -> nn.Module:
    """Return a model with ``ShortUpdates`` that shares all modules of ``model``.

    Return ``model`` itself if it has its own ``train`` or ``set_num_updates``.
    """
    usual = type(model).train is nn.Module.train and _only_calls(model)
    return with_mix_in(ShortUpdates, model) if usual else model


def seed_generators(seed: int) -> None:
    """Seed the generators of the CPU and of the current GPU.

    ``torch.manual_seed`` is slower, because it also stores a deferred call and a traceback for each device type that the machine lacks.
    """
    torch.default_generator.manual_seed(seed)
    torch.cuda.manual_seed(seed)


class MemoryLog:
    """Lets fairseq log the free GPU memory only at every ``interval``-th update, because measuring the memory is slow.

    Attributes:
        environment: fairseq's description of the GPU. A trainer without this description logs no memory.
    """

    def __init__(self, trainer: Any, interval: int | None) -> None:
        self.environment, self.interval = trainer.cuda_env, interval or 1

    def begin_update(self, trainer: Any) -> None:
        wanted = (trainer.get_num_updates() + 1) % self.interval == 0
        trainer.cuda_env = self.environment if wanted else None


class CachedConfig:
    """Configuration that caches each value it returns. fairseq reads about fifty values per update, and omegaconf's lookup is slow."""

    def __init__(self, cfg: Any) -> None:
        self.whole = cfg

    def __getattr__(self, name: str) -> Any:
        value = getattr(self.whole, name)
        value = CachedConfig(value) if isinstance(value, DictConfig) else value
        self.__dict__[name] = value
        return value


@contextmanager
def cached_configuration(trainer: Any, wanted: bool) -> Iterator[None]:
    """Inside the block, set ``trainer.cfg`` to the cached configuration ``trainer.cached_cfg`` if ``wanted``, else to the original.

    Only the original configuration can be saved in a checkpoint.
    """
    before = trainer.cfg
    if wanted:
        trainer.cfg = trainer.cached_cfg
    elif isinstance(before, CachedConfig):
        trainer.cfg = before.whole
    try:
        yield
    finally:
        trainer.cfg = before

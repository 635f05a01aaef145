"""Parts of an update that fairseq repeats without need: they take milliseconds of Python, in which a GPU waits."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Self

import torch
from fairseq.models import BaseFairseqModel, FairseqEncoder
from omegaconf import DictConfig
from torch import nn

from ..layers.replace import MixedIn, with_mix_in

# Functions that only call ``set_num_updates`` of the modules inside.
_CALLERS = BaseFairseqModel.set_num_updates, FairseqEncoder.set_num_updates


class ShortUpdates(MixedIn):
    """Mix-in for a model: no walk through all modules in an update.

    ``train()`` does nothing if the model is in the mode already. Modules change their mode together with the model.
    ``set_num_updates`` calls the modules that need the number, which are looked for once.
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
        for tell in self._counting:
            tell(num_updates)


def _only_calls(module):
    return getattr(type(module), "set_num_updates", None) in _CALLERS


def shorten_updates(model: nn.Module) -> nn.Module:
    """Return a model with ``ShortUpdates`` that shares all modules with the given one, or a model with its own methods unchanged."""
    usual = type(model).train is nn.Module.train and _only_calls(model)
    return with_mix_in(ShortUpdates, model) if usual else model


def seed_generators(seed: int) -> None:
    """Seed the generators of the CPU and of the current GPU.

    ``torch.manual_seed`` also queues a seed for each kind of device that the machine does not have, with a traceback.
    """
    torch.default_generator.manual_seed(seed)
    torch.cuda.manual_seed(seed)


class MemoryLog:
    """Lets fairseq log the free memory of the GPU at every ``interval``-th update and not at each, because torch counts it slowly.

    Attributes:
        environment: fairseq's description of the GPU, without which it logs no memory.
    """

    def __init__(self, trainer: Any, interval: int | None) -> None:
        self.environment, self.interval = trainer.cuda_env, interval or 1

    def begin_update(self, trainer: Any) -> None:
        wanted = (trainer.get_num_updates() + 1) % self.interval == 0
        trainer.cuda_env = self.environment if wanted else None


class QuickConfig:
    """A configuration that looks up each value once. fairseq reads about fifty values in an update, and omegaconf's lookup is slow."""

    def __init__(self, cfg: Any) -> None:
        self.whole = cfg

    def __getattr__(self, name: str) -> Any:
        value = getattr(self.whole, name)
        value = QuickConfig(value) if isinstance(value, DictConfig) else value
        self.__dict__[name] = value
        return value


@contextmanager
def reading_quickly(trainer: Any, wanted: bool) -> Iterator[None]:
    """Inside the block, ``trainer.cfg`` is ``trainer.quick_cfg`` if ``wanted``, else the whole configuration, which fairseq saves."""
    before = trainer.cfg
    if wanted:
        trainer.cfg = trainer.quick_cfg
    elif isinstance(before, QuickConfig):
        trainer.cfg = before.whole
    try:
        yield
    finally:
        trainer.cfg = before

"""Layers, one file per kind. Each kind is registered under the capital letter that layer plans use.

A kind consists of a builder ``(config, stack) -> {name: Sublayer}`` in this package and a row in ``plan/kinds.py``. Importing this package
imports all its files, and so registers all kinds. ``adapters/`` trains small changes to frozen matrices. ``backskip/`` skips the backward
pass of frozen layers.
"""

import importlib
import pkgutil

from .base import BUILDERS, SlotConfig, build_slot

for _module in pkgutil.iter_modules(__path__):
    if not _module.ispkg:
        importlib.import_module(f"{__name__}.{_module.name}")

__all__ = ["BUILDERS", "SlotConfig", "build_slot"]

"""Kinds of layer, one file each, registered by the capital letter that layer plans use.

A kind is a function ``(config, stack) -> {name: Sublayer}`` here and a row of ``plan/kinds.py``. Importing this package
imports every file in it. The folders are for any kind: ``adapters`` trains a small change of a frozen matrix, ``backskip`` leaves out
the backward pass of a frozen layer.
"""

import importlib
import pkgutil

from .base import BUILDERS, SlotConfig, build_slot

for _module in pkgutil.iter_modules(__path__):
    if not _module.ispkg:
        importlib.import_module(f"{__name__}.{_module.name}")

__all__ = ["BUILDERS", "SlotConfig", "build_slot"]

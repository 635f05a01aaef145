"""Kinds of layer, one file each, registered by the capital letter that layer plans use.

A kind is a function ``(config, stack) -> {name: Sublayer}``. Importing this package imports every file in it, so a new
kind is one new file here and one line in ``layer_plan``.
"""

import importlib
import pkgutil

from .base import KINDS, SlotConfig, build_slot

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")

__all__ = ["KINDS", "SlotConfig", "build_slot"]

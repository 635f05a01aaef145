"""Python API: ``freeze``, ``masks`` and ``slot_table`` for built models, and ``load`` for checkpoints and exports."""

from .checkpoint import load
from .freezing.by_name import freeze, masks, slot_table

__all__ = ["freeze", "load", "masks", "slot_table"]

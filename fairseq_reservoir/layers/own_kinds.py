"""API for user-defined kinds of layer. The code in a ``--user-dir`` imports this module (docs/your-own-kind.md)."""

from dataclasses import replace

from ..plan import kinds
from ..plan.kinds import NOTHING, WHOLE, Kind
from .base import BUILDERS, Builder, Context, SlotConfig, Sublayer
from .cross_attention import CrossAttention, cross_attention
from .feed_forward import FeedForward

__all__ = [
    "Context",
    "CrossAttention",
    "FeedForward",
    "Kind",
    "NOTHING",
    "SlotConfig",
    "Sublayer",
    "WHOLE",
    "cross_attention",
    "register_kind",
]


def register_kind(kind: Kind, build: Builder) -> None:
    """Register a kind of layer for layer plans in this process.

    A checkpoint stores the names of the kinds and the letters of its plan, but no code. Register the same kinds before you load the
    checkpoint.

    Args:
        kind: the description of the kind.
        build: a function ``(config, stack) -> {name: Sublayer}`` that builds the layer. The sublayers run in the order of the
            dictionary.

    Raises:
        InputError: a letter, the name or the reservoir type already belongs to a different kind, or the kind's field ``fairseqs`` is True.
    """
    kind = replace(kind, registered_by=build.__module__)
    kinds.register(kind)
    BUILDERS[kind.letter] = build

"""Kinds of layer of your own: what a ``--user-dir`` imports to register them, as docs/your-own-kind.md shows."""

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
    """Makes a kind of layer known to layer plans, in this process.

    Checkpoints store its letters and name. Whoever loads one has to register the same again: nothing is imported because a
    file says so.

    Args:
        kind: its row. Of its letters, those that stand in a plan go into checkpoints, and with them the name.
        build: a function ``(config, stack) -> {name: Sublayer}`` that makes the layer, its sublayers in their order.

    Raises:
        InputError: a letter, the name or the type of reservoir is taken, or ``fairseqs`` is set.
    """
    kind = replace(kind, registered_by=build.__module__)
    kinds.register(kind)
    BUILDERS[kind.letter] = build

"""Gives an object that exists a further base class, in front of its own."""

import functools
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    MixedIn = Any  # a mix-in has what the object's own class has, which no declaration says
else:
    MixedIn = object


@functools.cache
def _with(mixin: type, kind: type) -> type:
    return type(kind)(kind.__name__, (mixin, kind), {"__module__": mixin.__module__, "__doc__": mixin.__doc__})


def mix_in(mixin: type, thing: Any) -> None:
    """Lets ``mixin``'s methods come before those of the object's class, whose name stays: fairseq compares names of classes in checkpoints.

    A second call does nothing.
    """
    if not isinstance(thing, mixin):
        thing.__class__ = _with(mixin, type(thing))  # type: ignore[arg-type]  # mypy: a class is not hashable

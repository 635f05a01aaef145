"""Replacement of modules inside a model by modules of another class with the same state."""

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from torch import nn

if TYPE_CHECKING:
    MixedIn = Any  # a mix-in uses undeclared attributes of the class that it is combined with
else:
    MixedIn = object

Thing = TypeVar("Thing")
_ADOPTED = "_adopted"  # an attribute of objects that share their attributes


def adopt(kind: type[Thing], thing: Any) -> Thing:
    """Create an instance of ``kind`` that shares all attributes of ``thing``: parameters, buffers, hooks and training mode.

    ``kind.__init__`` does not run, so that no random number is drawn. Use only one of the two objects afterwards.
    """
    new = kind.__new__(kind)
    # A new dictionary at the first adoption, because Python 3.13.0 stores the attributes of an object inside it, and its garbage collector
    # would destroy the values that ``new`` still uses together with ``thing``.
    attributes = thing.__dict__
    if _ADOPTED not in attributes:
        thing.__dict__ = attributes = {**attributes, _ADOPTED: True}
    new.__dict__ = attributes
    return new


def with_mix_in(mixin: type, thing: Any) -> Any:
    """Create an object with the state of ``thing`` and a class that puts ``mixin`` before the class of ``thing``.

    The new class has the name of the old class, because fairseq compares class names in checkpoints. A ``thing`` that has the
    mix-in already is returned unchanged.
    """
    if isinstance(thing, mixin):
        return thing
    return adopt(_combined(mixin, type(thing)), thing)  # type: ignore[arg-type]  # mypy: a class is not hashable


@functools.cache
def _combined(mixin: type, kind: type) -> type:
    return type(kind)(kind.__name__, (mixin, kind), {"__module__": mixin.__module__, "__doc__": mixin.__doc__})


def replace_modules(model: nn.Module, replacement: Callable[[Any], nn.Module | None]) -> None:
    """Replace every module below ``model`` by ``replacement(module)``, in place.

    A module with several parents is replaced once. Its parents share the replacement.

    Args:
        model: the model. It is not replaced itself.
        replacement: function that returns the new module for a module, or None to keep the module.
    """
    replaced: dict[nn.Module, nn.Module | None] = {}
    for parent in list(model.modules()):
        for name, child in list(parent._modules.items()):
            if child is None:
                continue
            if child not in replaced:
                replaced[child] = replacement(child)
            new = replaced[child]
            if new is not None:
                setattr(parent, name, new)

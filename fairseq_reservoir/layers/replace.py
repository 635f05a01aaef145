"""Replace modules of a model by modules of a different class with the same state."""

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from torch import nn

if TYPE_CHECKING:
    MixedIn = Any  # a mix-in uses attributes of the class that it is combined with, without declaring them
else:
    MixedIn = object

Thing = TypeVar("Thing")
_ADOPTED = "_adopted"  # marks objects whose attributes are shared


def adopt(kind: type[Thing], thing: Any) -> Thing:
    """Create an instance of ``kind`` that shares all attributes of ``thing``: parameters, buffers, hooks and training mode.

    ``kind.__init__`` does not run, so no random number is drawn. Use only one of the two objects afterwards.
    """
    new = kind.__new__(kind)
    # The first adoption makes a new dictionary, because Python 3.13.0 stores the attributes of ``thing`` inside the object. Its garbage
    # collector would destroy them together with ``thing``, although ``new`` still uses them.
    attributes = thing.__dict__
    if _ADOPTED not in attributes:
        thing.__dict__ = attributes = {**attributes, _ADOPTED: True}
    new.__dict__ = attributes
    return new


def with_mix_in(mixin: type, thing: Any) -> Any:
    """Create an object that shares the state of ``thing``. Its class inherits from ``mixin`` and from the class of ``thing``.

    The new class has the name of the old class, because fairseq compares class names in checkpoints. If ``thing`` already has the mix-in,
    return ``thing`` unchanged. The new object can be copied and pickled if ``thing`` can.
    """
    if isinstance(thing, mixin):
        return thing
    return adopt(_combined(mixin, type(thing)), thing)  # type: ignore[arg-type]  # mypy: a class is not hashable


@functools.cache
def _combined(mixin: type, kind: type) -> type:
    about = {
        "__module__": mixin.__module__,
        "__doc__": mixin.__doc__,
        "__reduce_ex__": _reduce,
        # The classes from which ``_unpickled`` makes this class again. ``kind`` may itself be a combined class.
        "made_of": (mixin, *getattr(kind, "made_of", (kind,))),
    }
    return type(kind)(kind.__name__, (mixin, kind), about)


def _reduce(thing: Any, protocol: Any) -> tuple[Any, ...]:
    """``__reduce_ex__`` of the combined classes. pickle cannot find these classes by name."""
    # (copyreg.__newobj__, (class, argument, ...), state, ...)
    reduced: Any = object.__reduce_ex__(thing, max(protocol, 2))
    return (_unpickled, (type(thing).made_of, *reduced[1][1:]), *reduced[2:])


def _unpickled(made_of: tuple[Any, ...], *arguments: Any) -> Any:
    *mixins, kind = made_of
    for mixin in reversed(mixins):
        kind = _combined(mixin, kind)
    return kind.__new__(kind, *arguments)


def replace_modules(model: nn.Module, replacement: Callable[[Any], nn.Module | None]) -> None:
    """Replace every submodule of ``model`` by ``replacement(module)``, in place. ``model`` itself is not replaced.

    ``replacement`` returns the new module, or None to keep the old one. If a module has several parents, ``replacement`` is called once,
    and the parents share the new module.
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

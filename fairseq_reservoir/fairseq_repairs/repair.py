"""Repairs and hooks: what a repair is, and the one way in which a function of fairseq is changed.

The repairs are listed in order in ``in_order``, the hooks in ``training.install``.
"""

import functools
import inspect
import logging
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from ..errors import InputError

logger = logging.getLogger(__name__)

# An environment variable: names of repairs to leave out, with commas between.
WITHOUT = "FAIRSEQ_RESERVOIR_WITHOUT"
APPLIED, NOT_NEEDED, SWITCHED_OFF = "applied", "not needed", "switched off"

# What has been done in this process, by the repairs' names.
_states: dict[str, str] = {}


@dataclass(frozen=True)
class Repair:
    """A change of the installed fairseq, or of what it runs on, that puts one defect right; calling it does that if it is needed.

    Attributes:
        name: by which it is listed and switched off.
        put_right: makes the change; its docstring says what is wrong without it.
        is_needed: whether the defect is there, asked before.
    """

    name: str
    put_right: Callable[[], None]
    is_needed: Callable[[], bool]

    def __call__(self) -> str:
        if not self.is_needed():
            return NOT_NEEDED
        self.put_right()
        return APPLIED

    @property
    def state(self) -> str | None:
        """``applied``, ``not needed`` or ``switched off``; None if it has not been looked at in this process."""
        return _states.get(self.name)

    @property
    def looks(self) -> bool:
        """Whether it looks for the defect; otherwise it is applied always."""
        return self.is_needed is not _always

    @property
    def purpose(self) -> str:
        """The first line of what its function says."""
        return str(inspect.getdoc(self.put_right)).splitlines()[0].replace("``", "").rstrip(".")


def _always() -> bool:
    return True


def repair(name: str, needed: Callable[[], bool] = _always):
    """Makes a ``Repair`` of the function below."""
    return lambda put_right: Repair(name, put_right, needed)


def apply(repairs: Iterable[Repair]) -> None:
    """Repairs in this order what needs it and is not switched off; what has been done before is not done again.

    Raises:
        InputError: ``FAIRSEQ_RESERVOIR_WITHOUT`` names no repair.
    """
    repairs = tuple(repairs)
    left_out = switched_off(repairs)
    for one in repairs:
        if one.state is None:
            _states[one.name] = SWITCHED_OFF if one.name in left_out else one()
    if left_out:
        logger.warning("%s=%s: not repaired in fairseq", WITHOUT, ",".join(sorted(left_out)))


def switched_off(repairs: Iterable[Repair]) -> set[str]:
    """The names in ``FAIRSEQ_RESERVOIR_WITHOUT``.

    Raises:
        InputError: one of them is no repair's.
    """
    known = [one.name for one in repairs]
    asked = {name.strip() for name in os.environ.get(WITHOUT, "").split(",")} - {""}
    for name in sorted(asked.difference(known)):
        raise InputError(f"{WITHOUT} {name}: no such repair; choose from {', '.join(known)}")
    return asked


def wrap(owner, name: str, hook: Callable) -> None:
    """Replace a callable by one that calls ``hook(original, ...)``. A hook that is there already is not added again.

    Args:
        owner: a module, or a class for a method of any kind; its instance or class comes after ``original``.
        name: the attribute of the owner. It may be any callable: a function, a bound method, a builtin, a ``functools.partial``, an
            object with ``__call__``.
        hook: may call ``original`` with its arguments. Of two hooks of a function, the one added later is called first.
    """
    found = inspect.getattr_static(owner, name)
    is_marked = isinstance(found, (classmethod, staticmethod))
    original = found.__func__ if is_marked else found
    if (hook.__module__, hook.__qualname__) in [(h.__module__, h.__qualname__) for h in hooks_of(original)]:
        return

    @functools.wraps(original)
    def hooked(*args, **kwargs):
        return hook(original, *args, **kwargs)

    hooked.hook = hook  # type: ignore[attr-defined]  # a function takes any attribute
    replacement: Any = hooked
    if is_marked:
        replacement = type(found)(hooked)
    elif inspect.isclass(owner) and not _takes_instance(found):
        replacement = staticmethod(hooked)
    setattr(owner, name, replacement)


def _takes_instance(attribute) -> bool:
    """Return whether an attribute of a class receives the instance as its first argument when it is called through one.

    ``functools.partial`` has a ``__get__`` from Python 3.13 on that only warns: it will receive the instance in 3.14.
    """
    return (
        hasattr(type(attribute), "__get__")
        and not inspect.ismethod(attribute)
        and not isinstance(attribute, functools.partial)
    )


def hooks_of(function: Callable) -> list[Callable]:
    """The hooks of a function in the order in which they are called."""
    found: Any = getattr(function, "__func__", function)
    hooks: list[Callable] = []
    while inspect.isfunction(found) and hasattr(found, "hook"):
        hooks.append(found.hook)
        found = vars(found)["__wrapped__"]
    return hooks

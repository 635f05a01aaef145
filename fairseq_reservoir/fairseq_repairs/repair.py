"""``Repair``, a repair of a defect of fairseq, and ``wrap``, which hooks a function of fairseq.

``in_order`` lists all repairs. ``trainer.install`` lists the other hooks.
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

# Environment variable: names of repairs to switch off, separated by commas.
WITHOUT = "FAIRSEQ_RESERVOIR_WITHOUT"
APPLIED, NOT_NEEDED, SWITCHED_OFF = "applied", "not needed", "switched off"

# The states of the repairs in this process, by name.
_states: dict[str, str] = {}


@dataclass(frozen=True)
class Repair:
    """A repair of one defect of the installed fairseq, or of its libraries. Calling the object applies the repair if it is needed.

    Attributes:
        name: name of the repair in lists and in ``FAIRSEQ_RESERVOIR_WITHOUT``.
        put_right: function that applies the repair. Its docstring describes the defect.
        is_needed: function that checks whether the defect exists.
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
        """``applied``, ``not needed`` or ``switched off``; None before ``apply``."""
        return _states.get(self.name)

    @property
    def is_applied(self) -> bool:
        """Whether the repair is applied in this process.

        Some repairs have functions that ``ReservoirTrainer`` calls. These functions check this property.
        """
        return self.state == APPLIED

    @property
    def is_conditional(self) -> bool:
        """Whether the repair has a check, and is applied only if the check finds the defect. Repairs without a check are always applied."""
        return self.is_needed is not _always

    @property
    def purpose(self) -> str:
        """The first line of the docstring of ``put_right``."""
        return str(inspect.getdoc(self.put_right)).splitlines()[0].replace("``", "").rstrip(".")


def _always() -> bool:
    return True


def repair(name: str, needed: Callable[[], bool] = _always):
    """Decorator that turns a function into a ``Repair``."""
    return lambda put_right: Repair(name, put_right, needed)


def apply(repairs: Iterable[Repair]) -> None:
    """Apply the given repairs one after another. Skip repairs that are not needed, are switched off, or have been applied before.

    Raises:
        InputError: ``FAIRSEQ_RESERVOIR_WITHOUT`` has an unknown name.
    """
    repairs = tuple(repairs)
    left_out = switched_off(repairs)
    for one in repairs:
        if one.state is None:
            _states[one.name] = SWITCHED_OFF if one.name in left_out else one()
    if left_out:
        logger.warning("%s=%s: these repairs of fairseq are switched off", WITHOUT, ",".join(sorted(left_out)))


def switched_off(repairs: Iterable[Repair]) -> set[str]:
    """Return the names of repairs in ``FAIRSEQ_RESERVOIR_WITHOUT``.

    Raises:
        InputError: a name is unknown.
    """
    known = [one.name for one in repairs]
    given = {name.strip() for name in os.environ.get(WITHOUT, "").split(",")} - {""}
    for name in sorted(given.difference(known)):
        raise InputError(f"{WITHOUT} {name}: no such repair; choose from {', '.join(known)}")
    return given


def wrap(owner, name: str, hook: Callable) -> None:
    """Replace a function by one that calls ``hook(original, ...)``. The same hook is not added twice.

    Args:
        owner: a module, or the class of a method. The hook of a method receives ``original`` first, and then the instance or the
            class.
        name: name of a callable in the module, or of a method of the class.
        hook: a function that may call ``original`` with the remaining arguments. If a function has two hooks, the hook that was added last
            is called first.
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
    setattr(owner, name, replacement)


def hooks_of(function: Callable) -> list[Callable]:
    """Return the hooks of a function in the order in which they are called."""
    found: Any = getattr(function, "__func__", function)
    hooks: list[Callable] = []
    while inspect.isfunction(found) and hasattr(found, "hook"):
        hooks.append(found.hook)
        found = vars(found)["__wrapped__"]
    return hooks

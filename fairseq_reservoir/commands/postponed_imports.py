"""Import scikit-learn, scipy.stats and tabulate only when one of their functions is called.

This saves seconds, because most commands call none of them.
"""

import contextlib
import importlib
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

# fairseq imports these modules for its classification criterion and task, and sacreBLEU imports tabulate for its command line.
_POSTPONED = ("sklearn", "sklearn.metrics", "scipy.stats", "tabulate")


class _Postponed(ModuleType):
    """Placeholder of a module. Calling one of its functions imports the real module."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if (inner := f"{self.__name__}.{name}") in _POSTPONED:
            return sys.modules[inner]

        def function(*args: Any, **kwargs: Any) -> Any:
            return getattr(importlib.import_module(self.__name__), name)(*args, **kwargs)

        return function


@contextlib.contextmanager
def postponed() -> Iterator[None]:
    """Give placeholders of scikit-learn, scipy.stats and tabulate to all modules that are imported in the ``with`` block."""
    absent = [name for name in _POSTPONED if name not in sys.modules]
    sys.modules.update({name: _Postponed(name) for name in absent})
    try:
        yield
    finally:
        for name in absent:
            if isinstance(sys.modules.get(name), _Postponed):
                del sys.modules[name]

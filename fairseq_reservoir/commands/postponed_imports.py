"""Keep scikit-learn and scipy.stats out of commands that compute no scores: importing them with fairseq takes seconds."""

import contextlib
import importlib
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

# fairseq imports them for the criterion and the task of classifications.
_POSTPONED = ("sklearn", "sklearn.metrics", "scipy.stats")


class _Postponed(ModuleType):
    """Stands for a module. Its functions import the module when they are called."""

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
    """Modules that are imported in the body get functions of scikit-learn and scipy.stats that import these when they are called."""
    absent = [name for name in _POSTPONED if name not in sys.modules]
    sys.modules.update({name: _Postponed(name) for name in absent})
    try:
        yield
    finally:
        for name in absent:
            if isinstance(sys.modules.get(name), _Postponed):
                del sys.modules[name]

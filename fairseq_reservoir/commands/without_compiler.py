"""Build models on the meta device without importing torch's compiler.

torch computes meta tensors by Python functions that exclude themselves from compilation at their first call. This imports
``torch._dynamo``, which takes a second. A command that only builds a model never compiles.
"""

import contextlib
import importlib
import sys
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

_COMPILER = "torch._dynamo"
_CACHE = "__dynamo_disable"  # attribute in which torch keeps the excluded function


class _NoCompiler(ModuleType):
    """Placeholder of ``torch._dynamo``. Its ``disable`` returns the function unchanged; any other attribute imports the real module."""

    def __init__(self) -> None:
        super().__init__(_COMPILER)
        self.functions: list[Callable] = []

    def disable(self, function: Callable, *args: Any, **kwargs: Any) -> Callable:
        self.functions.append(function)
        return function

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name != "__path__":
            raise AttributeError(name)
        if sys.modules.get(_COMPILER) is self:
            del sys.modules[_COMPILER]
        return getattr(importlib.import_module(_COMPILER), name)


@contextlib.contextmanager
def without_compiler() -> Iterator[None]:
    """Give a placeholder of ``torch._dynamo`` to torch in the body, and restore torch afterwards."""
    if _COMPILER in sys.modules:
        yield
        return
    sys.modules[_COMPILER] = placeholder = _NoCompiler()
    try:
        yield
    finally:
        if sys.modules.get(_COMPILER) is placeholder:
            del sys.modules[_COMPILER]
        for function in placeholder.functions:
            vars(function).pop(_CACHE, None)

"""Read options from a configuration that may lack some of them, such as a command line of another command or an old checkpoint."""

from dataclasses import fields
from typing import Any, TypeVar

Options = TypeVar("Options")


def read(options: type[Options], config: Any) -> Options:
    """Create the dataclass from the values of a configuration. A missing option gets its default.

    Args:
        options: a dataclass with a default for every field. The defaults are stored only there.
        config: a namespace, a configuration, or None, which has no values.
    """
    names = [(one.name, one.default) for one in fields(options) if not one.name.startswith("_")]  # type: ignore[arg-type]
    return options(**{name: getattr(config, name, default) for name, default in names})

"""Read options from a configuration that may lack some options, such as an old checkpoint or the command line of another command."""

from dataclasses import fields
from typing import Any, TypeVar

Options = TypeVar("Options")


def read(options: type[Options], config: Any) -> Options:
    """Create the dataclass from the values of a configuration. A missing option gets its default.

    Args:
        options: a dataclass with a default for every field.
        config: a namespace or a configuration; None if no option is given.
    """
    names = [(one.name, one.default) for one in fields(options) if not one.name.startswith("_")]  # type: ignore[arg-type]
    return options(**{name: getattr(config, name, default) for name, default in names})

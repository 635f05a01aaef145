"""Read flags that only some fairseq commands have."""

from collections.abc import Iterable
from typing import Any


class Given:
    """The flags of a fairseq command, or one group of its configuration. The attribute of a missing flag is None."""

    def __init__(self, flags: Any) -> None:
        self._flags = flags

    def __getattr__(self, name: str) -> Any:
        return getattr(self._flags, name, None)


def names_in(words: Iterable[str]) -> set[str]:
    """Return the names of the flags on a command line. A flag may be given as ``--flag value`` or ``--flag=value``."""
    return {word.split("=")[0] for word in words}

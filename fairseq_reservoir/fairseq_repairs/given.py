"""Read flags that not all commands of fairseq have."""

from typing import Any


class Given:
    """The flags of a command of fairseq, or a part of its configuration. A flag that is missing there reads as None."""

    def __init__(self, flags: Any) -> None:
        self._flags = flags

    def __getattr__(self, name: str) -> Any:
        return getattr(self._flags, name, None)

"""Files in the folder of a run: found by name, read only if they are regular, and named if they cannot be read."""

import os
from pathlib import Path

from ...files import open_regular, read_text, regular, why

# The largest text that is read. A log of a training for weeks has a tenth of this.
MOST = 1 << 30
_MOST_OF_STATE = 1 << 16


def found(folder: Path, *patterns: str) -> list[Path]:
    """Regular files of the folder by pattern, those of the first pattern first."""
    return [path for path in _matching(folder, patterns) if regular(path)]


def text_of(path: Path) -> str | None:
    """The text of a file, None if it cannot be read; ``faults`` has the reason. A line feed ends a line, as in the file."""
    try:
        return read_text(path, MOST)
    except OSError:
        return None


def state_of(folder: Path) -> list[str]:
    """The words of the file in which a sweep keeps the state of a run, [] if it cannot be read."""
    try:
        return read_text(folder / "state", _MOST_OF_STATE).split()
    except OSError:
        return []


def faults(folder: Path, *patterns: str) -> list[str]:
    """A line for each file that a report would read and cannot, such as "generate.log is a FIFO"."""
    reasons = ((path, fault_of(path)) for path in _matching(folder, patterns))
    return [f"{path.relative_to(folder)} {reason}" for path, reason in reasons if reason]


def fault_of(path: Path) -> str:
    """Why a file cannot be read; "" if it can."""
    try:
        with open_regular(path) as file:
            size = os.fstat(file.fileno()).st_size
    except FileNotFoundError:
        return "is a link that leads nowhere"
    except OSError as error:
        reason = why(error)
        return reason if reason.startswith("is ") else f"cannot be read ({reason})"
    return f"is larger than {MOST:,} bytes" if size > MOST else ""


def _matching(folder, patterns):
    try:
        return list(dict.fromkeys(path for name in patterns for path in sorted(folder.glob(name))))
    except OSError:
        return []

"""Find and read the regular files in the folder of a run, and report files that cannot be read."""

import os
from pathlib import Path

from ...files import open_regular, read_text, regular, why_unreadable

# Largest file to read, in bytes. The log of several weeks of training has about a tenth of this size.
MOST = 1 << 30
_MOST_OF_STATE = 1 << 16


def found(folder: Path, *patterns: str) -> list[Path]:
    """Return the regular files of a folder that match any of the patterns, in the order of the patterns."""
    return [path for path in _matching(folder, patterns) if regular(path)]


def text_of(path: Path) -> str | None:
    """Return the text of a file, with unchanged line ends. Return None if the file cannot be read; ``faults`` returns the reason."""
    try:
        return read_text(path, MOST)
    except OSError:
        return None


def state_of(folder: Path) -> list[str]:
    """Return the words of a sweep's file ``state``; [] if it cannot be read."""
    try:
        return read_text(folder / "state", _MOST_OF_STATE).split()
    except OSError:
        return []


def faults(folder: Path, *patterns: str) -> list[str]:
    """Return a line for each file that matches a pattern and cannot be read, such as "generate.log is a FIFO"."""
    reasons = ((path, fault_of(path)) for path in _matching(folder, patterns))
    return [f"{path.relative_to(folder)} {reason}" for path, reason in reasons if reason]


def fault_of(path: Path) -> str:
    """Return why a file cannot be read; "" if it can."""
    try:
        with open_regular(path) as file:
            size = os.fstat(file.fileno()).st_size
    except FileNotFoundError:
        return "is a broken link"
    except OSError as error:
        return why_unreadable(error)
    return f"is larger than {MOST:,} bytes" if size > MOST else ""


def _matching(folder, patterns):
    try:
        return list(dict.fromkeys(path for name in patterns for path in sorted(folder.glob(name))))
    except OSError:
        return []

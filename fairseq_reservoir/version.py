"""The version of the package, which pip reads without importing anything else, and how a copy of it is known."""

from pathlib import Path

__version__ = "0.2.0"


def is_plugin(folder: Path) -> bool:
    """Whether a folder that a user gives is this plugin, or another copy of it."""
    here = Path(__file__)
    names = (folder.absolute().name, folder.resolve().name)  # of a link and of what it leads to
    return here.parent.name in names and (folder / here.name).is_file()

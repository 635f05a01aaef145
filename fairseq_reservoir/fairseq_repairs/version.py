"""Version of the package, and detection of other copies of the package. pip reads the version without importing other modules."""

from pathlib import Path

__version__ = "0.2.0"


def is_plugin(folder: Path) -> bool:
    """Whether a ``--user-dir`` is this plugin or another copy of it.

    If ``folder`` is only the name of the package, a package of this name in the current folder is checked. If there is none, the installed
    package is meant.
    """
    here = Path(__file__)
    package = here.parents[1]
    if str(folder) == package.name and not (folder / "__init__.py").is_file():
        return True
    names = (folder.absolute().name, folder.resolve().name)  # of a link, and of the folder to which it leads
    return package.name in names and (folder / here.relative_to(package)).is_file()

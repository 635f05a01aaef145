"""Repair of ``--user-dir``: one package is one package, however the path to its folder is written."""

import os
import sys
from pathlib import Path

from fairseq import utils

from ..errors import InputError
from .given import Given
from .repair import repair, wrap


@repair("user-dir")
def import_user_dirs_once():
    """Let every process of a run import its ``--user-dir`` by any path to the folder.

    fairseq compares two texts. A folder that it finds beside itself is ``.../fairseq/../NAME``, and a started process has imported the
    package from ``.../NAME``. That process ended with "not globally unique" (fairseq#2143, #3299, #4875).
    """

    def import_user_module(original, args):
        if not is_imported(Given(args).user_dir):
            original(args)

    wrap(utils, "import_user_module", import_user_module)


def is_imported(user_dir: str | None) -> bool:
    """Whether the package in ``user_dir`` is imported already.

    A name without such a folder stands for the package that fairseq finds beside itself, or that Python finds. So does a clone of a
    repository, which holds the package of its own name.

    Raises:
        InputError: another package of that name is imported.
    """
    folder = Path(user_dir or "")
    imported = list(getattr(sys.modules.get(folder.name), "__path__", ()))
    if not imported:
        return False
    if not (folder / "__init__.py").is_file():
        is_clone = (folder / folder.name / "__init__.py").is_file()
        return is_clone or (str(folder) == folder.name and not folder.is_dir())
    if not any(os.path.isdir(path) and os.path.samefile(folder, path) for path in imported):
        raise InputError(
            f"--user-dir {user_dir}: the package {folder.name} is already imported from {imported[0]}; give that folder, or rename "
            "this one"
        )
    return True

"""Repairs of fairseq's ``import_user_module``, which imports a ``--user-dir``. Every fairseq command calls this function first."""

import os
import sys
from pathlib import Path

from fairseq import utils

from ..errors import InputError
from .error_report import install_in_command
from .given import Given
from .repair import repair, wrap


@repair("input-errors")
def report_input_errors():
    """End fairseq commands with one line and status 2 after an ``InputError``.

    Plain fairseq reports a mistyped flag or a missing file by a traceback. The exception hook is installed when a fairseq command starts
    its work, because importing the plugin must not change other programs. Other errors are passed to the previous hook.
    """
    # Every command calls this function, even fairseq-preprocess, which does not call parse_args_and_arch.
    importing = hasattr(utils.import_user_module, "memo")  # fairseq sets it when it starts to import a --user-dir
    wrap(utils, "import_user_module", import_user_module)
    if importing:
        install_in_command()  # the rest of the --user-dir may raise an InputError


@repair("user-dir")
def import_user_dirs_once():
    """Let every process of a run import its ``--user-dir``, whichever path to the folder is given.

    fairseq compares paths as strings. If the folder is beside fairseq's own folder, fairseq's path to it is ``.../fairseq/../NAME``, but a
    child process has imported the package from ``.../NAME``. The child process then ends with "not globally unique" (fairseq#2143, #3299,
    #4875).
    """
    wrap(utils, "import_user_module", import_user_module)


def import_user_module(original, args):
    """Hook for both repairs above."""
    if report_input_errors.is_applied:
        install_in_command()
    if not (import_user_dirs_once.is_applied and is_imported(Given(args).user_dir)):
        original(args)


def is_imported(user_dir: str | None) -> bool:
    """Whether the package in ``user_dir`` is imported already.

    If there is no folder ``user_dir``, the text can be the name of a package that fairseq or Python finds. If there is such a folder, it
    can be the clone of a repository that contains a package of the same name, such as ``NAME`` with ``NAME/NAME``.

    Raises:
        InputError: a different package of this name is already imported.
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
            f"--user-dir {user_dir}: a package {folder.name} is already imported from {imported[0]}; give this folder as --user-dir, or "
            f"rename {user_dir}"
        )
    return True

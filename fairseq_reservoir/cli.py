"""The command ``fairseq-reservoir``: tools for plans, checkpoints and studies."""

import argparse
import contextlib
import functools
import logging
import os
import sys
import warnings
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from . import register
from .commands import (
    average,
    doctor,
    dump_embeddings,
    export,
    flag_groups,
    materialize,
    plan as plan_command,
    probe,
    report,
    size,
    sweep,
    translate,
)
from .commands.lazy_configurations import lazy_configurations
from .commands.plan import plan  # noqa: F401
from .commands.postponed_imports import postponed
from .commands.standard_output import writing
from .errors import InputError, check_arguments, in_one_line, printable
from .fairseq_repairs.version import __version__, is_plugin

# These commands build no model and can start without torch and fairseq.
_LIGHT = ("report", "sweep", "doctor")
_VERBOSE = (
    "also print fairseq's log and the libraries' warnings to standard error. `export` also prints details of the file"
)
_ABOUT = "Show which parts of a fairseq model are trained and which are frozen. Export and measure checkpoints. Run and compare trainings."


def main(arguments=None) -> None:
    """Run the command; ``arguments`` defaults to ``sys.argv[1:]``."""
    parser = argparse.ArgumentParser("fairseq-reservoir", description=_ABOUT)
    parser.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND", parser_class=_ParserWithOurFlags)
    for command in (
        plan_command,
        size,
        export,
        translate,
        materialize,
        average,
        dump_embeddings,
        probe,
        report,
        sweep,
        doctor,
    ):
        command.add_parser(commands)
    for name, subparser in commands.choices.items():
        if name not in _LIGHT:
            subparser.add_argument(
                "--user-dir", metavar="DIR", help="folder of a Python package that registers your own kinds of layer"
            )
            subparser.add_argument("--verbose", action="store_true", help=_VERBOSE)
    try:
        check_arguments(sys.argv[1:] if arguments is None else arguments)
        known, fairseq_flags = parser.parse_known_args(arguments)
        if fairseq_flags and not hasattr(known, "takes_fairseq_flags"):
            commands.choices[known.command].error(f"unrecognized arguments: {' '.join(fairseq_flags)}")
        with _logging_everything() if getattr(known, "verbose", False) else _quiet():
            known.prepare = functools.partial(_prepare, known)
            if known.command not in _LIGHT and not hasattr(known, "prepares_itself"):
                known.prepare()
            result = known.run(known, fairseq_flags)
        if result is not None:
            with writing():
                print(printable(result), flush=True)
    except InputError as error:
        sys.exit(f"fairseq-reservoir: error: {error}")
    except KeyboardInterrupt:
        sys.exit(130)  # the exit status by which shells report Ctrl-C


def _prepare(known):
    """Register the models with fairseq, and import the user's package.

    Raises:
        InputError: torch or fairseq is not installed.
    """
    if missing := [name for name in ("torch", "fairseq") if not find_spec(name)]:
        raise InputError(
            f"{known.command}: needs {' and '.join(missing)}; run bash scripts/setup.sh in a clone of the repository"
        )
    with postponed(), lazy_configurations():
        register()
    _import_user_dir(known.user_dir)


def _import_user_dir(folder):
    """Import a user's ``--user-dir`` as fairseq does. The plugin's own folder is skipped, because it is already imported."""
    if folder is None or is_plugin(Path(folder)):
        return
    if not os.path.isfile(os.path.join(folder, "__init__.py")):  # pathlib raises for names of more than 255 bytes
        raise InputError(f"--user-dir {folder}: is not a folder with a file __init__.py")
    from fairseq.utils import import_user_module

    try:
        import_user_module(argparse.Namespace(user_dir=folder))
    except InputError:
        raise
    except Exception as error:  # a user's code may raise anything
        raise InputError(f"--user-dir {folder}: cannot be imported: {type(error).__name__}: {error}") from error


def _user_dir_in(arguments):
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--user-dir")
    return parser.parse_known_args(arguments)[0].user_dir


class _ParserWithOurFlags(argparse.ArgumentParser):
    """Parser of a subcommand. Its errors have one line, and its ``--help`` lists the plugin's flags.

    ``--help`` also lists the kinds of layer that a ``--user-dir`` registers. fairseq is imported only if a ``--user-dir`` is given, because
    the import takes seconds.
    """

    arguments: Sequence[str] = ()

    def __init__(self, **options):
        super().__init__(formatter_class=argparse.RawDescriptionHelpFormatter, **options)

    def parse_known_args(self, args=None, namespace=None):
        self.arguments = args or ()
        return super().parse_known_args(args, namespace)

    def error(self, message):
        self.exit(2, f"{self.prog}: error: {in_one_line(message)}\n")

    def format_help(self):
        text = super().format_help()
        if not self.get_default("takes_fairseq_flags"):
            return text
        folder = _user_dir_in(self.arguments)
        if folder is not None and not is_plugin(Path(folder)):  # it may register kinds of layer
            with _quiet():
                register()
                _import_user_dir(folder)
        return f"{text}\n{flag_groups.in_groups()}\n"


@contextlib.contextmanager
def _quiet():
    """Suppress warnings and log lines while fairseq is imported and models are built."""
    level = logging.root.manager.disable
    logging.disable(logging.INFO)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(level)


@contextlib.contextmanager
def _logging_everything():
    """Write all log lines of fairseq to standard error. Python's warnings are printed as usual."""
    root, handler = logging.getLogger(), logging.StreamHandler()
    level = root.level
    handler.setFormatter(logging.Formatter("%(levelname)s | %(name)s | %(message)s"))
    root.addHandler(handler)
    root.setLevel(logging.INFO)
    try:
        yield
    finally:
        root.removeHandler(handler)
        root.setLevel(level)


if __name__ == "__main__":
    main()

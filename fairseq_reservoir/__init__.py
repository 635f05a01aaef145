"""Frozen random Transformers for fairseq: a Python package that is also a ``--user-dir``.

Importing the package registers the models and installs hooks in fairseq. The import has no other effect on the process.
"""

import functools
import logging
import sys
from contextlib import contextmanager
from importlib.util import find_spec

from .fairseq_repairs.version import __version__ as __version__


@functools.cache
def register() -> None:
    """Register the models with fairseq and install the hooks. Repeated calls do nothing.

    If fairseq is not installed, nothing is registered, but the tensors of an export can still be read.

    Raises:
        InputError: an environment variable of this package has an invalid value.
    """
    if not find_spec("fairseq"):
        return
    from .fairseq_repairs import import_warnings

    with _logging_unchanged(), import_warnings.ignored():
        from .trainer.install import install

        install()


@contextmanager
def _logging_unchanged():
    """Keep fairseq's import from configuring logging.

    fairseq's module text_to_speech configures the root logger and recommends tensorboardX in a log line.
    """
    root, advice = logging.getLogger(), logging.getLogger("fairseq.tasks.text_to_speech")
    # logging.basicConfig does nothing if the root logger has a handler. lastResort is Python's fallback handler.
    handler = None if root.handlers else logging.lastResort
    if handler:
        root.addHandler(handler)
    advice.addFilter(_nothing)
    try:
        yield
    finally:
        advice.removeFilter(_nothing)
        if handler:
            root.removeHandler(handler)


def _nothing(record):
    return False


# Some commands need neither torch nor fairseq. The console script registers the models only for the other commands.
if not getattr(sys.modules.get("fairseq_reservoir_cli"), "is_running", False):
    register()

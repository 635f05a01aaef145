"""Frozen random Transformers for fairseq: a package and a ``--user-dir`` in one folder.

Importing it registers the models and installs the hooks in fairseq. Nothing else in the process changes.
"""

import functools
import logging
import sys
from contextlib import contextmanager
from importlib.util import find_spec

from .version import __version__ as __version__


@functools.cache
def register() -> None:
    """Register the models with fairseq and install the hooks; a second call does nothing.

    Without fairseq there is nothing to register, but the tensors of an export can still be read.

    Raises:
        InputError: an environment variable of ours has a value that is not allowed.
    """
    if not find_spec("fairseq"):
        return
    from .fairseq_repairs import import_warnings

    with _logging_unchanged(), import_warnings.ignored():
        from .trainer.install import install

        install()

        # Registers the models; fairseq's own search of models/ would, but in the order of its folders.
        from .models import reservoir, supermask  # noqa: F401, I001

        # Last, since it skips the architectures of this package.
        from .models import frozen  # noqa: F401


@contextmanager
def _logging_unchanged():
    """Keep fairseq from configuring logging when it is imported.

    Its module text_to_speech configures the root logger, and advises every program to install tensorboardX.
    """
    root, advice = logging.getLogger(), logging.getLogger("fairseq.tasks.text_to_speech")
    # logging.basicConfig changes nothing if the root logger has a handler. This one prints warnings, as Python does without any.
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


# Some commands need neither torch nor fairseq. The console script registers the models once it knows the command.
if not getattr(sys.modules.get("fairseq_reservoir_cli"), "is_running", False):
    register()

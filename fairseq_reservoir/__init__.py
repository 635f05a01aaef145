"""Frozen random Transformers for fairseq: a package and a ``--user-dir`` in one folder."""

import logging
import sys
from importlib.util import find_spec
from pathlib import Path

from .version import __version__ as __version__

# Three commands and --version need neither fairseq nor torch: importing them would take as long as a report, or fail before
# doctor says why.
_program = sys.argv[0] if sys.argv else ""
_is_ours = Path(_program).name == "fairseq-reservoir" or _program == "-m" and "fairseq_reservoir.cli" in sys.orig_argv
_alone = _is_ours and sys.argv[1:2] in (["report"], ["sweep"], ["doctor"], ["--version"])

# Without fairseq there is nothing to register, but an export's tensors can still be read.
if find_spec("fairseq") and not _alone:
    # At import it advises every command, of text too, to install tensorboardX.
    logging.getLogger("fairseq.tasks.text_to_speech").setLevel(logging.WARNING)
    from .fairseq_repairs import import_warnings

    with import_warnings.ignored():
        from .training.install import install

        install()

        # Registers the models; fairseq's own search of models/ would, but in the order of its folders.
        from .models import reservoir, supermask  # noqa: F401, I001

        # Last, since it skips what is ours.
        from .models import frozen  # noqa: F401

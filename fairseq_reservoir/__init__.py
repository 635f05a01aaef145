"""Frozen random Transformers for fairseq: a package and a ``--user-dir`` in one folder."""

import logging
import sys
from importlib.util import find_spec
from pathlib import Path

# Two commands need neither fairseq nor torch, and importing them would take as long as a report.
_alone = Path(sys.argv[0] if sys.argv else "").name == "fairseq-reservoir" and sys.argv[1:2] in (["report"], ["sweep"])

# Without fairseq there is nothing to register, but an export's tensors can still be read.
if find_spec("fairseq") and not _alone:
    # At import it advises every command, of text too, to install tensorboardX.
    logging.getLogger("fairseq.tasks.text_to_speech").setLevel(logging.WARNING)
    from . import backskipping, fairseq_compat, rank_checks, training_hooks
    from .checkpoint import fairseq_loader
    from .optim import freeze_skip

    fairseq_compat.apply()
    training_hooks.install()
    fairseq_loader.install()
    freeze_skip.install()
    backskipping.install()
    rank_checks.install()

    from .models import (  # noqa: F401
        reservoir_roberta,
        reservoir_transformer,
        reservoir_transformer_lm,
        supermask_one_layer_roberta,
        supermask_one_layer_transformer,
        supermask_one_layer_transformer_lm,
    )
    # Last, since it skips what is ours.
    from .models import frozen_architectures  # noqa: F401

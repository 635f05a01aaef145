"""A ``--user-dir`` for Frozen Pretrained Transformers (Lu et al., 2021): the architecture ``frozen_fpt`` and the task ``fpt``."""

import fairseq_reservoir  # noqa: F401  registers the plugin
from fairseq_reservoir.models.frozen.components import register_frozen

from . import model, task  # noqa: F401  register themselves

register_frozen()

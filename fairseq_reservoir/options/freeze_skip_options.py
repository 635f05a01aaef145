"""The flags that the optimizer ``freeze_skip`` adds to the flags of its inner optimizer."""

from dataclasses import dataclass
from typing import Optional

from .flags import Flags, option


@dataclass
class FreezeSkipOptions(Flags):
    """The flags of ``freeze_skip``. Components are written as for ``--freeze``."""

    freeze_schedule: Optional[str] = option(
        None,
        "freeze components from an update on, or train them again (with a minus): UPDATE:COMPONENTS entries with ascending updates, "
        "separated by semicolons. Frozen parameters have no updates, weight decay, momentum or optimizer memory. Example: "
        '"0:emb;2000:encoder.layers.0-2;8000:-emb"',
        "ENTRIES",
    )
    freeze_progressive: Optional[str] = option(
        None,
        "freeze the layers of every stack from the bottom up: the first layer at update START, then one more layer every EVERY "
        "updates. The top layer of a stack stays trained. Example: 2000:500",
        "START:EVERY",
    )
    freeze_rotate: Optional[str] = option(
        None,
        "train K randomly drawn layers, freeze all other layers, and draw again every PERIOD updates (LISA). Parameters outside the "
        "layers, such as embeddings, are always trained. Example: 2:200",
        "K:PERIOD",
    )
    freeze_update_every: Optional[str] = option(
        None,
        "update components only in every N-th update: COMPONENT:N items, separated by commas. Their gradients are not computed in the "
        "other updates, and their momentum is kept. Example: ffn:4,emb:2",
        "ITEMS",
    )

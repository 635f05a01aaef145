"""The flags that the optimizer ``freeze_skip`` adds to the flags of its inner optimizer."""

from dataclasses import dataclass
from typing import Optional

from .flags import Flags, option


@dataclass
class FreezeSkipOptions(Flags):
    """The flags of ``freeze_skip``. Components are written as for ``--freeze``."""

    freeze_schedule: Optional[str] = option(
        None,
        "components to freeze, or with a minus to train again, from an update on: UPDATE:COMPONENTS entries with semicolons between, "
        "updates ascending. Frozen parameters take no update, decay, momentum or optimizer memory. Example: "
        '"0:emb;2000:encoder.layers.0-2;8000:-emb"',
        "ENTRIES",
    )
    freeze_progressive: Optional[str] = option(
        None,
        "freeze the layers of every stack from the bottom up, the first at update START, then one every EVERY updates; "
        "the last layer of a stack stays trained. Example: 2000:500",
        "START:EVERY",
    )
    freeze_rotate: Optional[str] = option(
        None,
        "train K layers at a time, drawn again every PERIOD updates, and freeze all others (LISA); parameters outside the layers, such as "
        "embeddings, are always trained. Example: 2:200",
        "K:PERIOD",
    )
    freeze_update_every: Optional[str] = option(
        None,
        "update components only every N-th time: COMPONENT:N items with commas between. Their gradients are not computed in "
        "between; momentum is kept. Example: ffn:4,emb:2",
        "ITEMS",
    )

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
        excludes={"freeze_auto": "since both freeze layers from the bottom up; leave one of them out"},
    )
    freeze_rotate: Optional[str] = option(
        None,
        "train K layers at a time, drawn again every PERIOD updates, and freeze all others (LISA); parameters outside the layers, such as "
        "embeddings, are always trained. Example: 2:200",
        "K:PERIOD",
        excludes={"freeze_auto": "since it trains layers again that have learned; leave one of them out"},
    )
    freeze_update_every: Optional[str] = option(
        None,
        "update components only every N-th time: COMPONENT:N items with commas between. Their gradients are not computed in "
        "between; momentum is kept. Example: ffn:4,emb:2",
        "ITEMS",
        excludes={
            "freeze_auto": "since a layer that is updated less often seems to have learned; leave one of them out"
        },
    )
    freeze_auto: bool = option(
        False,
        "freeze layers once they have learned: the encoder's from the lowest on, with the embeddings below it, then the decoder's. Every "
        "interval some sentences are passed through the model; a layer has learned when its outputs have changed little since the last "
        "measurement, compared with their largest change between two measurements. A frozen layer stays frozen",
    )
    freeze_auto_interval: Optional[int] = option(
        None,
        "for --freeze-auto: the number of updates between two measurements of the layers. Default: 100",
        "UPDATES",
        at_least=1,
        needs=("freeze_auto",),
    )
    freeze_auto_threshold: Optional[float] = option(
        None,
        "for --freeze-auto: a layer has learned when it has changed twice in a row by less than this share of its largest change "
        "between two measurements; a larger share freezes earlier. Default: 0.2",
        "SHARE",
        above=0,
        below=1,
        needs=("freeze_auto",),
    )
    freeze_auto_keep: Optional[int] = option(
        None,
        "for --freeze-auto: the number of layers, counted from the model's output, that always stay trained. Default: 1",
        "N",
        at_least=1,
        needs=("freeze_auto",),
    )

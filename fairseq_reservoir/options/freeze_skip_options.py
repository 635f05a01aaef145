"""The flags of the optimizer ``freeze_skip``, beside those of the optimizer inside it."""

from dataclasses import dataclass
from typing import Optional

from fairseq.dataclass import FairseqDataclass

from .flags import option


@dataclass
class FreezeSkipOptions(FairseqDataclass):
    """The flags that ``freeze_skip`` adds to those of the optimizer inside. Components are written as for ``--freeze``."""

    freeze_schedule: Optional[str] = option(
        None,
        "what to freeze, and with a minus to train again, from which update on: UPDATE:COMPONENTS entries with semicolons between, "
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
        "train K layers at a time, drawn anew every PERIOD updates, and freeze all others (LISA); what is in no layer, such as "
        "embeddings, is always trained. Example: 2:200",
        "K:PERIOD",
    )
    freeze_update_every: Optional[str] = option(
        None,
        "update components only every N-th time: COMPONENT:N items with commas between. Their gradients are not computed in "
        "between; momentum is kept. Example: ffn:4,emb:2",
        "ITEMS",
    )
    freeze_auto: bool = option(
        False,
        "freeze layers once they have learned: the encoder's from the lowest on, with the embeddings below it, then the decoder's. Every "
        "interval some sentences are passed through the model; a layer has learned when its outputs have changed little since the last "
        "look, compared with the most they ever changed between two looks. A frozen layer stays so",
    )
    freeze_auto_interval: Optional[int] = option(
        None, "for --freeze-auto: how many updates lie between two looks at the layers. Default: 100", "UPDATES"
    )
    freeze_auto_threshold: Optional[float] = option(
        None,
        "for --freeze-auto: a layer has learned when twice running it has changed by less than this share of the most it changed "
        "between two looks; more freezes earlier. Default: 0.2",
        "SHARE",
    )
    freeze_auto_keep: Optional[int] = option(
        None,
        "for --freeze-auto: how many layers, counted from the model's output, always stay trained. Default: 1",
        "N",
    )

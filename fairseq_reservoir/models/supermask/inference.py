"""Supermask models ready to translate: masks multiplied into the weights, or random weights not held at all."""

import gc
import logging
from typing import Any

import torch
from torch import nn

from ...errors import InputError
from ...layers.replace import replace_modules
from ...masks.masked_embedding import TiedProjection
from ...masks.masked_weight import masked_modules
from ...masks.regenerated import LayerCache, regenerated
from ...masks.rounded_weight import SharedLinear, rounded_modules
from .stacks import RandomLayer

logger = logging.getLogger(__name__)


class FoldsMasks:
    """To be mixed into a supermask model, whose ``slot_table`` has the seed that its random weights are drawn from."""

    regenerate_weights = False

    def make_generation_fast_(self, **kwargs):
        """fairseq calls this before it translates. Outputs stay the same, and the model cannot be trained any more."""
        self.eval()
        fold(self, self.regenerate_weights)
        super().make_generation_fast_(**kwargs)


@torch.no_grad()
def fold(model: nn.Module, regenerate: bool = False) -> None:
    """Puts an ordinary module with the masked weight in the place of every masked one, and so of every rounded one.

    What was one module stays one, and the random layers, which nothing reads any more, are emptied.

    Args:
        model: a supermask model in evaluation mode.
        regenerate: hold masks alone where the random weights can be drawn again (``masks.regenerated``).
    """
    kept, held = LayerCache(), []
    new: dict[nn.Module, nn.Module | None] = {}
    for name, masked in masked_modules(model).items():
        if regenerate:
            table: Any = model.slot_table
            new[masked] = regenerated(masked, masked.recipe, table.seed, kept)
        if new.get(masked) is None:
            new[masked] = masked.folded()
            held.append(name)
        masked.mask_cache.forget(masked)
    for rounded in rounded_modules(model).values():
        new[rounded] = rounded.folded()
    new |= {shared: new[shared.owner] for shared in model.modules() if isinstance(shared, SharedLinear)}
    replace_modules(model, new.get)
    for part in model.modules():
        if isinstance(part, TiedProjection):
            part._embedding = (new.get(part.embedding) or part.embedding,)
        elif isinstance(part, RandomLayer):
            part._buffers.clear()
    new.clear()
    gc.collect()  # masked modules know each other through their cache
    if regenerate and held:
        logger.info("regenerate_weights: held as they are: %s", ", ".join(held))


def refuse_in_training(config) -> None:
    """Raises InputError if the model that is to be trained would hold no random weights."""
    if getattr(config, "regenerate_weights", False):
        raise InputError(
            "--regenerate-weights: for inference only; give it to fairseq-generate as"
            " --model-overrides \"{'regenerate_weights': True}\""
        )

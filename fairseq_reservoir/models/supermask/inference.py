"""Prepare supermask models for inference: multiply masks into weights, or store only masks and draw the weights when they are used."""

import gc
import logging
from typing import Any

import torch
from torch import nn

from ...layers.replace import replace_modules
from ...masks.masked_embedding import TiedProjection
from ...masks.masked_weight import masked_modules
from ...masks.regenerated import regenerated
from ...masks.rounded_weight import SharedLinear, rounded_modules
from .stacks import RandomLayer

logger = logging.getLogger(__name__)


class FoldsMasks:
    """Mix-in for supermask models: multiply masks into weights before inference."""

    regenerate_weights = False

    def make_generation_fast_(self, **kwargs):
        """Multiply masks into weights. fairseq calls this before inference. Afterwards the model cannot be trained."""
        self.eval()
        fold(self, self.regenerate_weights)
        super().make_generation_fast_(**kwargs)


@torch.no_grad()
def fold(model: nn.Module, regenerate: bool = False) -> None:
    """Replace every masked or rounded module by an ordinary module with the same weight, in place.

    Outputs stay the same, and shared modules stay shared. The buffers of random layers are removed.

    Args:
        model: a supermask model in evaluation mode.
        regenerate: store only masks where possible (``masks.regenerated``). ``freezing.regenerated`` later draws the random weights.
    """
    stored = []
    new: dict[nn.Module, nn.Module | None] = {}
    for name, masked in masked_modules(model).items():
        if regenerate:
            table: Any = model.slot_table
            new[masked] = regenerated(masked, masked.recipe, table.seed)
        if new.get(masked) is None:
            new[masked] = masked.folded()
            stored.append(name)
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
    gc.collect()  # masked modules form reference cycles with their cache
    if regenerate and stored:
        logger.info(
            "--regenerate-weights: these weights are stored, because they cannot be regenerated: %s", ", ".join(stored)
        )

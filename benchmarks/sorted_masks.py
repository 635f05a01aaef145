"""For comparison only, and no part of the package: masks as the official code of the one-layer paper makes them.

Every forward pass of training sorts the magnitudes of every score tensor, all of them, and marks the largest; every use of a
tensor sorts it again, a tied output projection too. The package selects without a sort, once per update.
"""

import torch

from fairseq_reservoir.layers.replace import replace_modules, with_mix_in
from fairseq_reservoir.masks.masked_embedding import TiedProjection
from fairseq_reservoir.masks.masked_weight import masked_modules
from fairseq_reservoir.masks.selection import keep_count


class _LargestBySorting(torch.autograd.Function):
    """1 at the ``count`` largest entries and 0 elsewhere, with the gradient of the identity."""

    @staticmethod
    def forward(ctx, magnitudes, count):
        mask = torch.zeros_like(magnitudes)
        mask.view(-1)[magnitudes.flatten().sort().indices[magnitudes.numel() - count :]] = 1
        return mask

    @staticmethod
    def backward(ctx, grad):
        return grad, None


class _SortsAtEveryUse:
    @property
    def weight(self):
        count = keep_count(self.choices.keep_ratio, self.scores.numel())
        return self.frozen_weight * _LargestBySorting.apply(self.scores.abs(), count).to(self.frozen_weight.dtype)


def sort_at_every_use(model):
    """Replace the masked modules of a model by modules that sort their scores at every use of the weight."""
    sorting = {module: with_mix_in(_SortsAtEveryUse, module) for module in masked_modules(model).values()}
    replace_modules(model, sorting.get)
    for module in model.modules():
        if isinstance(module, TiedProjection):  # its embedding is no child of it
            module._embedding = (sorting.get(module.embedding, module.embedding),)
    return model

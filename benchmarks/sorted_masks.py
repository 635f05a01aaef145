"""Masks as in the official code of the one-layer paper, for comparison. This is not part of the package.

Every use of a masked tensor in a forward pass sorts the magnitudes of all its scores; a tied output projection sorts them again.
The package selects masks once per update, without a sort.
"""

import torch

from fairseq_reservoir.layers.replace import replace_modules, with_mix_in
from fairseq_reservoir.masks.masked_embedding import TiedProjection
from fairseq_reservoir.masks.masked_weight import masked_modules
from fairseq_reservoir.plan.mask_choices import keep_count


class _LargestBySorting(torch.autograd.Function):
    """Mask with 1 at the ``count`` largest entries, and the gradient of the identity."""

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
        if isinstance(module, TiedProjection):  # its embedding is not a submodule
            module._embedding = (sorting.get(module.embedding, module.embedding),)
    return model

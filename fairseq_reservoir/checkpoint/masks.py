"""The masks of a model as an export holds them."""

import torch

from ..errors import InputError
from ..masks import bits
from ..masks.masked_weight import masked_modules, nan_scores
from .ledger import Ledger


def pack_masks(model: torch.nn.Module, ledger: Ledger) -> dict[str, torch.Tensor]:
    """The mask entries that have scores, packed, under the names of these scores; pinned ones are drawn again.

    Loaded in place of the scores, the entries select the same mask: they rank as the scores did, but for order among
    equals, and as many of each value are wanted as there are.

    Raises:
        InputError: scores are NaN.
    """
    if found := nan_scores(model):
        raise InputError(f"CHECKPOINT: NaN in {', '.join(found)}; export one from before that")
    modules, packed = masked_modules(model), {}
    for item in ledger.of("mask"):
        module = modules[item.name.removesuffix("scores").removesuffix(".")]
        mask = module.mask if module.learned is None else module.mask.gather(1, module.learned)
        packed[item.name] = bits.pack(mask, item.bits, item.lowest)
    return packed

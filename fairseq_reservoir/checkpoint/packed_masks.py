"""Masks and rounded weights as an export holds them: entries and numbers of levels, packed as bits, and scales."""

import torch

from ..errors import InputError
from ..masks import bits
from ..masks.levels import name_of_scales
from ..masks.masked_weight import masked_modules, nan_scores
from ..masks.rounded_weight import rounded_modules
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


def shapes_of_scales(ledger: Ledger) -> dict[str, tuple[int, int]]:
    """By name, the shapes of the scales that the state dict of an export has, and that of a checkpoint has not."""
    shapes = {item.name: (item.scales, 1) for item in ledger.of("rounded")}
    shapes |= {item.name: shapes[item.owner] for item in ledger.of("tied") if item.owner in shapes}
    return {name_of_scales(name): shape for name, shape in shapes.items()}


def pack_levels(model: torch.nn.Module, ledger: Ledger) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    """The numbers of the levels, packed, under the names of the latent weights; and the scales, float32.

    Raises:
        InputError: latent weights are NaN.
    """
    modules, packed, scales = rounded_modules(model), {}, {}
    for item in ledger.of("rounded"):
        module = modules[item.name.removesuffix("latent").removesuffix(".")]
        if module.latent.isnan().any():
            raise InputError(f"CHECKPOINT: NaN in {item.name}; export one from before that")
        levels, scales[name_of_scales(item.name)] = module.levels_and_scales()
        packed[item.name] = bits.pack(module.levels.numbers(levels), module.levels.bits)
    return packed, scales

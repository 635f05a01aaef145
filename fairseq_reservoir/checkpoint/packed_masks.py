"""Pack masks and rounded weights for an export. Mask entries and levels become packed bits. The scales of levels become float32."""

import torch

from ..errors import InputError
from ..masks import bits
from ..masks.levels import name_of_scales
from ..masks.masked_weight import masked_modules, nan_scores
from ..masks.rounded_weight import rounded_modules
from .ledger import Ledger


def pack_masks(model: torch.nn.Module, ledger: Ledger) -> dict[str, torch.Tensor]:
    """Pack the mask entries that have scores. Return the packed entries under the names of the scores.

    Pinned entries have no scores. They are random, and are drawn again when the export is loaded. Loading uses the packed entries as
    scores. These scores select the same mask, because the model keeps the largest scores.

    Raises:
        InputError: scores are NaN.
    """
    if found := nan_scores(model):
        raise InputError(f"CHECKPOINT: NaN in {', '.join(found)}; export an earlier checkpoint")
    modules, packed = masked_modules(model), {}
    for item in ledger.with_roles("mask"):
        module = modules[item.name.removesuffix("scores").removesuffix(".")]
        mask = module.mask if module.learned is None else module.mask.gather(1, module.learned)
        packed[item.name] = bits.pack(mask, item.bits, item.lowest)
    return packed


def shapes_of_scales(ledger: Ledger) -> dict[str, tuple[int, int]]:
    """Map the name of each rounded weight's scales to their shape. Only the state dict of an export has scales."""
    shapes = {item.name: (item.scales, 1) for item in ledger.with_roles("rounded")}
    shapes |= {item.name: shapes[item.owner] for item in ledger.with_roles("tied") if item.owner in shapes}
    return {name_of_scales(name): shape for name, shape in shapes.items()}


def pack_levels(model: torch.nn.Module, ledger: Ledger) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    """Return a pair: the packed level indices by the names of the latent weights, and the float32 scales by the names of the scales.

    Raises:
        InputError: latent weights are NaN.
    """
    modules, packed, scales = rounded_modules(model), {}, {}
    for item in ledger.with_roles("rounded"):
        module = modules[item.name.removesuffix("latent").removesuffix(".")]
        if module.latent.isnan().any():
            raise InputError(f"CHECKPOINT: NaN in {item.name}; export an earlier checkpoint")
        levels, scales[name_of_scales(item.name)] = module.levels_and_scales()
        packed[item.name] = bits.pack(module.levels.numbers(levels), module.levels.bits)
    return packed, scales

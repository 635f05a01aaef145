"""List the tensors of a built model with their roles (trained, frozen, random, mask, tied, ...) and their bytes."""

import math
from dataclasses import dataclass
from typing import Any

from torch import nn

from ..masks.bits import bytes_of
from ..masks.levels import Levels
from ..masks.masked_weight import masked_modules
from ..masks.rounded_weight import rounded_modules
from ..plan.freeze_spec import BACKSKIPS
from ..plan.mask_choices import MaskChoices
from ..random_tensors.recipe import Recipe
from .entropy_code import entropy_bits

# Bytes per entry of the dtypes of an export.
WIDTHS = {"fp32": 4, "fp16": 2, "bf16": 2}
# Bytes per entry of Adam's two moments, and of a gradient, in float32.
_MOMENTS, _GRADIENT = 8, 4


@dataclass(frozen=True)
class Item:
    """One entry of a model's state dict.

    Attributes:
        name: name of the entry.
        shape: shape of the tensor.
        width: bytes per number.
        role: ``trained``; ``mask`` (scores from which a mask is selected); ``rounded`` (latent weights, which are rounded to levels);
            ``random`` (drawn by ``recipe``, never changed); ``frozen`` (by --freeze, or word vectors from a file); ``buffer``;
            ``training`` (needed only in training, such as the estimators of --backskip); or ``tied`` (the tensor of the entry ``owner``).
        recipe: recipe for a random tensor.
        owner: for a tied entry, the name of the entry with the same tensor.
        bits: number of bits of each packed mask entry or level.
        lowest: smallest entry of a mask.
        entropy: entropy of a mask entry in bits (see ``mask_entropy``). For rounded weights with k levels, the maximum entropy log2(k).
        keep_ratios: for each mask of the tensor, the fraction of the weights that this mask keeps.
        levels: levels of rounded weights.
        learned: False for scores and latent weights that are frozen.
    """

    name: str
    shape: tuple[int, ...]
    width: int
    role: str
    recipe: Recipe | None = None
    owner: str | None = None
    bits: int = 0
    lowest: int = 0
    entropy: float = 0.0
    keep_ratios: tuple[float, ...] = ()
    levels: Levels | None = None
    learned: bool = True

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def drawn(self) -> Recipe:
        """Recipe for a random tensor."""
        assert self.recipe is not None
        return self.recipe

    @property
    def bytes(self) -> int:
        """Bytes in memory; 0 for a tied tensor."""
        return 0 if self.role == "tied" else self.size * self.width

    @property
    def stored_bytes(self) -> int:
        """Bytes in fairseq's checkpoint, which stores half-precision tensors as float32."""
        return 2 * self.bytes if self.width == 2 else self.bytes

    @property
    def mask_bytes(self) -> int:
        """Bytes of the packed mask or levels.

        The lowest bits of all entries form one plane, the next bits another plane, and so on. Each plane is rounded up to whole bytes.
        """
        return bytes_of(self.size, self.bits)

    @property
    def mask_entropy_bytes(self) -> int:
        """Entropy of the mask or levels in bytes. Their size in a compact export is about the same."""
        return math.ceil(self.size * self.entropy / 8)

    @property
    def scales(self) -> int:
        """Number of scale factors stored for the rounded weights."""
        return self.levels.scales_in(self.shape[0]) if self.levels else 0

    @property
    def is_embedding(self) -> bool:
        return ".embed_tokens." in self.name

    @property
    def is_folded(self) -> bool:
        """Whether the tensor is omitted at inference: it is folded into a weight (masks, row gains, adapters) or is unused."""
        return self.role in ("mask", "training") or ".frozen_adapter." in self.name or self.name.endswith(".row_gain")

    def export_bytes(self, dtype: str = "fp32", with_weights: bool = False, regenerate: bool = False) -> int:
        """Bytes of the tensor in an export with these options."""
        if self.role == "mask":
            return self.mask_bytes
        if self.role == "rounded":
            return self.mask_bytes + self.scales * WIDTHS[dtype]
        if self.role == "training" or self.role == "random" and not with_weights and (regenerate or self.drawn.exact):
            return 0
        return self.size * WIDTHS[dtype] if self.role in ("trained", "frozen") else self.stored_bytes


@dataclass(frozen=True)
class Ledger:
    """The items of a model in the order of its state dict."""

    items: tuple[Item, ...]

    def with_roles(self, *roles: str) -> list[Item]:
        return [item for item in self.items if item.role in roles]

    @property
    def learned(self) -> list[Item]:
        """Items that have a gradient and Adam's moments."""
        return [item for item in self.with_roles("trained", "mask", "rounded") if item.learned]

    @property
    def weight_bytes(self) -> int:
        """Bytes of the model's tensors in memory."""
        return sum(item.bytes for item in self.items)

    @property
    def optimizer_bytes(self) -> int:
        """Bytes of Adam's two moments for all trained tensors."""
        return sum(item.size * _MOMENTS for item in self.learned)

    @property
    def training_bytes(self) -> int:
        """Bytes of weights, gradients and Adam's moments in float32, without activations."""
        return self.weight_bytes + self.optimizer_bytes + sum(item.size * _GRADIENT for item in self.learned)

    @property
    def checkpoint_bytes(self) -> int:
        """Bytes of weights and Adam's moments in fairseq's checkpoint."""
        return sum(item.stored_bytes for item in self.items) + self.optimizer_bytes

    @property
    def inference_bytes(self) -> int:
        """Bytes of tensors at inference. Adapters and masks are folded into the weights.

        For a matrix W with several masks, each product of W and a mask is stored. W itself and the mask scores are not stored.
        """
        return sum(item.bytes * (len(item.keep_ratios) or 1) for item in self.items if not item.is_folded)

    @property
    def papers_bytes(self) -> float:
        """Memory as counted in the paper of the one-layer model: 4 bytes per weight.

        A masked weight counts only if its first mask keeps it.
        """
        weights = (item for item in self.items if item.role in ("trained", "frozen", "random"))
        return sum(4 * item.size * (item.keep_ratios[0] if item.keep_ratios else 1) for item in weights)

    @property
    def share_in_use(self) -> float:
        """Expected fraction of weights that at least one mask keeps, in tensors with several masks.

        The masks are assumed to be independent.
        """
        shared = [item for item in self.items if len(item.keep_ratios) > 1]
        used = sum(item.size * (1 - math.prod(1 - ratio for ratio in item.keep_ratios)) for item in shared)
        return used / max(1, sum(item.size for item in shared))

    def export_bytes(self, dtype: str = "fp32", with_weights: bool = False, regenerate: bool = False) -> int:
        """Return the number of bytes of the tensors in an export, without its description."""
        return sum(item.export_bytes(dtype, with_weights, regenerate) for item in self.items)

    @property
    def saved_by_entropy(self) -> int:
        """Bytes that entropy coding saves for masks and levels."""
        return sum(item.mask_bytes - item.mask_entropy_bytes for item in self.items if item.entropy)


def mask_entropy(choices: MaskChoices) -> float:
    """Return the entropy of a mask entry in bits. In signed masks, both signs are assumed to be equally frequent.

    A mask may be the sum of c nested masks, called coats, with keep ratios k_1 > k_2 > ... > k_c. Then the fraction 1 - k_1 of the entries
    is 0, the fraction k_1 - k_2 has the magnitude 1, and so on. The fraction k_c has the magnitude c. In a signed mask, each nonzero entry
    needs one more bit for its sign. Four signed coats with the keep ratios 0.8, 0.5, 0.25 and 0.1 have 2.23 bits for the magnitude and 0.8
    bits for the sign, together 3.03 bits per entry.
    """
    ratios = (1.0, *choices.keep_ratios, 0.0)
    of_magnitudes = entropy_bits([larger - smaller for larger, smaller in zip(ratios, ratios[1:])])
    return of_magnitudes + (choices.keep_ratio if choices.kind == "signed" else 0.0)


def ledger(model: nn.Module) -> Ledger:
    """Return the ledger of a built model, which may be on the meta device.

    Args:
        model: a module. If it has random tensors, its attribute ``recipes`` maps their names in the state dict to recipes.
    """
    parameters = dict(model.named_parameters(remove_duplicate=False))
    masks = {f"{name}.scores".lstrip("."): module.choices for name, module in masked_modules(model).items()}
    rounded = {f"{name}.latent".lstrip("."): module.levels for name, module in rounded_modules(model).items()}
    keep_ratios: dict[int, list[float]] = {}
    for module in masked_modules(model).values():
        keep_ratios.setdefault(id(module.frozen_weight), []).append(module.choices.keep_ratio)
    recipes: dict[str, Recipe] = getattr(model, "recipes", {})
    owners: dict[int, str] = {}
    items: list[Item] = []
    packed: dict[str, Any]
    for name, tensor in model.state_dict(keep_vars=True).items():
        shape, width = tuple(tensor.shape), tensor.element_size()
        owner, kept = owners.setdefault(id(tensor), name), tuple(keep_ratios.get(id(tensor), ()))
        if owner != name:
            items.append(Item(name, shape, width, "tied", owner=owner))
        elif name in recipes:
            items.append(Item(name, shape, width, "random", recipe=recipes[name], keep_ratios=kept))
        elif kept:
            items.append(Item(name, shape, width, "frozen", keep_ratios=kept))
        elif name in masks:
            choices = masks[name]
            packed = {"bits": choices.bits, "lowest": choices.lowest, "entropy": mask_entropy(choices)}
            items.append(Item(name, shape, width, "mask", **packed, learned=tensor.requires_grad))
        elif name in rounded:
            levels = rounded[name]
            packed = {"bits": levels.bits, "levels": levels, "entropy": math.log2(levels.count)}
            items.append(Item(name, shape, width, "rounded", **packed, learned=tensor.requires_grad))
        elif name in parameters:
            items.append(Item(name, shape, width, "trained" if tensor.requires_grad else "frozen"))
        else:
            items.append(Item(name, shape, width, "training" if name.startswith(f"{BACKSKIPS}.") else "buffer"))
    return Ledger(tuple(items))

"""Lists the tensors of a built model: trained, frozen, random, masked or tied, and what that costs in bytes."""

import math
from dataclasses import dataclass, replace

from torch import nn

from ..layers.backskip import backward_skip as backskip
from ..masks.bits import bytes_of
from ..masks.levels import Levels
from ..masks.masked_weight import masked_modules
from ..masks.rounded_weight import rounded_modules
from ..plan.mask_choices import MaskChoices
from ..random_tensors.recipe import Recipe
from .entropy_code import entropy_bits

# Bytes per entry of the number formats an export can have.
WIDTHS = {"fp32": 4, "fp16": 2, "bf16": 2}
# Adam's two moments in float32, and a gradient.
_MOMENTS, _GRADIENT = 8, 4


@dataclass(frozen=True)
class Item:
    """One entry of a model's state dict.

    Attributes:
        role: ``trained``; the scores of a ``mask``, trained too; latent weights of which ``rounded`` ones are used, trained too;
            ``random``, drawn by ``recipe`` and never changed;
            ``frozen`` otherwise, as by --freeze or as word vectors read from a file; a ``buffer``; of the ``training`` and no
            part of the model, as estimators of --backskip; or ``tied`` to the entry ``owner``.
        bits, lowest: of a mask, bits per entry and its smallest value; of rounded weights, bits per level.
        entropy: of a mask, the entropy of an entry in bits, if as many are negative as positive; of one of k levels, log2(k), which it
            has if all are as frequent; otherwise less.
        levels: of rounded weights, what they are rounded to.
        keep_ratios: of a tensor behind masks, the share that each of them keeps.
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
        """The recipe of a random tensor."""
        assert self.recipe is not None
        return self.recipe

    @property
    def bytes(self) -> int:
        """Bytes in memory; a tied tensor has none of its own."""
        return 0 if self.role == "tied" else self.size * self.width

    @property
    def stored_bytes(self) -> int:
        """Bytes in fairseq's checkpoint, which has half precision as float32."""
        return 2 * self.bytes if self.width == 2 else self.bytes

    @property
    def mask_bytes(self) -> int:
        """Bytes of the mask, or of rounded weights' levels, packed to bits, each plane of bits rounded up to bytes."""
        return bytes_of(self.size, self.bits)

    @property
    def mask_entropy_bytes(self) -> int:
        """Bytes of the mask's entropy, or of the levels', which a compact export comes near."""
        return math.ceil(self.size * self.entropy / 8)

    @property
    def scales(self) -> int:
        """How many scales rounded weights have."""
        return self.levels.scales_in(self.shape[0]) if self.levels else 0

    @property
    def is_embedding(self) -> bool:
        return ".embed_tokens." in self.name

    @property
    def is_folded(self) -> bool:
        """Whether inference has it as a part of another tensor, a mask, the factors of its rows or an adapter, or not at all."""
        return self.role in ("mask", "training") or ".frozen_adapter." in self.name or self.name.endswith(".row_gain")

    def export_bytes(self, dtype: str = "fp32", with_weights: bool = False, regenerate: bool = False) -> int:
        """Bytes of data in an export with these options."""
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

    def of(self, *roles: str) -> list[Item]:
        return [item for item in self.items if item.role in roles]

    @property
    def learned(self) -> list[Item]:
        """What has a gradient and Adam's moments."""
        return [item for item in self.of("trained", "mask", "rounded") if item.learned]

    @property
    def weight_bytes(self) -> int:
        """The bytes of the model's tensors in memory."""
        return sum(item.bytes for item in self.items)

    @property
    def optimizer_bytes(self) -> int:
        """Adam's two moments of what is trained."""
        return sum(item.size * _MOMENTS for item in self.learned)

    @property
    def training_bytes(self) -> int:
        """Weights, gradients and Adam's moments in float32, without activations."""
        return self.weight_bytes + self.optimizer_bytes + sum(item.size * _GRADIENT for item in self.learned)

    @property
    def checkpoint_bytes(self) -> int:
        """Data of fairseq's checkpoint: weights and Adam's moments."""
        return sum(item.stored_bytes for item in self.items) + self.optimizer_bytes

    @property
    def inference_bytes(self) -> int:
        """Tensors in memory at inference. Adapters are folded, and masks: a matrix each, no scores, no shared one."""
        return sum(item.bytes * (len(item.keep_ratios) or 1) for item in self.items if not item.is_folded)

    @property
    def papers_bytes(self) -> float:
        """The memory as the paper of the one-layer model counts it: 4 bytes for the share of the weights that one mask keeps."""
        weights = (item for item in self.items if item.role in ("trained", "frozen", "random"))
        return sum(4 * item.size * (item.keep_ratios[0] if item.keep_ratios else 1) for item in weights)

    @property
    def share_in_use(self) -> float:
        """The share of the weights behind several masks that at least one of them keeps, if masks fall independently."""
        shared = [item for item in self.items if len(item.keep_ratios) > 1]
        used = sum(item.size * (1 - math.prod(1 - ratio for ratio in item.keep_ratios)) for item in shared)
        return used / max(1, sum(item.size for item in shared))

    def export_bytes(self, dtype: str = "fp32", with_weights: bool = False, regenerate: bool = False) -> int:
        """Bytes of data in an export; its description comes on top."""
        return sum(item.export_bytes(dtype, with_weights, regenerate) for item in self.items)

    @property
    def saved_by_entropy(self) -> int:
        """Bytes between masks or levels as bits and their entropy."""
        return sum(item.mask_bytes - item.mask_entropy_bytes for item in self.items if item.entropy)


def mask_entropy(choices: MaskChoices) -> float:
    """The entropy of a mask's entry in bits, if as many are negative as positive.

    With keep ratios k_1 > k_2 > ... a share 1 - k_1 of the entries is 0, k_1 - k_2 is +-1, and so on; the sign of what is not 0
    is one bit more. Four signed coats of 0.8, 0.5, 0.25, 0.1: 2.23 + 0.8 = 3.03 bits.
    """
    ratios = (1.0, *choices.keep_ratios, 0.0)
    of_magnitudes = entropy_bits([larger - smaller for larger, smaller in zip(ratios, ratios[1:])])
    return of_magnitudes + (choices.keep_ratio if choices.kind == "signed" else 0.0)


def ledger(model: nn.Module) -> Ledger:
    """The ledger of a built model, also of one on the device ``meta``.

    Args:
        model: a module; ``model.recipes``, if there, maps names of its state dict to the recipes of random tensors. The
            scores of the masked modules in it are masks.
    """
    parameters = dict(model.named_parameters(remove_duplicate=False))
    masks = {f"{name}.scores".lstrip("."): module.choices for name, module in masked_modules(model).items()}
    rounded = {f"{name}.latent".lstrip("."): module.levels for name, module in rounded_modules(model).items()}
    keep_ratios: dict[int, list[float]] = {}
    for module in masked_modules(model).values():
        keep_ratios.setdefault(id(module.frozen_weight), []).append(module.choices.keep_ratio)
    recipes: dict[str, Recipe] = getattr(model, "recipes", {})
    owners: dict[int, str] = {}
    items = []
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
            bits, entropy = choices.bits, mask_entropy(choices)
            item = Item(name, shape, width, "mask", bits=bits, lowest=choices.lowest, entropy=entropy)
            items.append(replace(item, learned=tensor.requires_grad))
        elif name in rounded:
            levels = rounded[name]
            entropy = math.log2(levels.count)
            item = Item(name, shape, width, "rounded", bits=levels.bits, levels=levels, entropy=entropy)
            items.append(replace(item, learned=tensor.requires_grad))
        elif name in parameters:
            items.append(Item(name, shape, width, "trained" if tensor.requires_grad else "frozen"))
        else:
            items.append(Item(name, shape, width, "training" if name.startswith(f"{backskip.NAME}.") else "buffer"))
    return Ledger(tuple(items))

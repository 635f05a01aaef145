"""Read the tensors of an export without fairseq: stored tensors, and random tensors drawn from the seed.

``arrays`` returns NumPy arrays and needs no torch. ``read_state_dict`` and ``state_dict`` return torch's tensors.
"""

import hashlib
import math
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import InputError
from ..masks import bits
from ..masks.levels import KINDS, Levels, name_of_scales
from ..random_tensors.philox import GENERATOR
from ..random_tensors.recipe import OF_ANY_SHAPE, Recipe
from . import export_file
from .compact import is_shape, refuse_entry
from .stored import Array, Stored, round_to

if TYPE_CHECKING:
    import torch

Tensors = dict[str, Stored]

# Maximum number of random numbers in a file: more than any model has, and enough to fill the memory of most machines.
MOST_DRAWN = 2**31
_ROUNDINGS = ("fp32", "fp16", "bf16")


def read_state_dict(path: str) -> dict[str, "torch.Tensor"]:
    """Return the state dict of the exported model, float32 as in fairseq's checkpoints.

    Mask entries replace the scores. From these entries, the model selects the same mask, because it keeps the largest scores. Levels
    replace the latent weights. The state dict also contains the scales of the levels. Tied parameters share one tensor.

    Raises:
        InputError: the file is truncated, altered or not an export, or a random tensor drawn on this machine differs in some bits from the
            tensor of the training.
    """
    from . import damage

    with damage.reading(path):
        return state_dict(path, *export_file.read(path))


def state_dict(path: str, body: dict[str, Any], tensors: Tensors) -> dict[str, "torch.Tensor"]:
    """Convert the result of ``export_file.read`` to a state dict."""
    import torch

    found = arrays(path, body, tensors)
    shared = {id(array): torch.from_numpy(array) for array in found.values()}
    return {name: shared[id(array)] for name, array in found.items()}


def arrays(path: str, body: dict[str, Any], tensors: Tensors) -> dict[str, Array]:
    """Convert the result of ``export_file.read`` to a state dict of NumPy arrays. Tied parameters share one array."""
    check_sizes(path, body, tensors)
    if body["random"] and body["generator"] != GENERATOR:
        raise InputError(
            f"{path}: the random tensors need the generator {body['generator']}, but this fairseq_reservoir has {GENERATOR}"
        )
    state = {name: tensor.array() for name, tensor in tensors.items()}
    for name, mask in body["masks"].items():
        state[name] = bits.unpack_array(state[name], **mask).astype(np.float32)
    for name, rounded in body.get("levels", {}).items():
        levels = Levels(rounded["kind"])
        state[name] = levels.from_numbers(bits.unpack_array(state[name], rounded["shape"], levels.bits))
    for name, random in body["random"].items():
        if name not in state:
            state[name] = _draw(name, random, body["seed"])
        if hashlib.sha256(state[name].tobytes()).hexdigest() != random["sha256"]:
            raise InputError(
                f"{path}: {name}, drawn on this machine, differs from the training tensor (orthogonal and normal tensors"
                " agree across machines only to about 1e-6); export the checkpoint again without --regenerate"
            )
    for name, owner in body["tied"].items():
        state[name] = state[owner]
        if owner in body.get("levels", {}):  # a module with two names loads its scales under both names
            state[name_of_scales(name)] = state[name_of_scales(owner)]
    return state


def check_sizes(path: str, body: dict[str, Any], tensors: Tensors) -> None:
    """Refuse masks with a wrong number of bytes, and random tensors of impossible size, before memory is allocated."""
    refuse = partial(refuse_entry, path)

    def check_packed(name: str, shape: Any, planes: Any, otherwise: str) -> None:
        """Refuse a tensor that does not have ``planes`` bits (1 to 8) for each entry of ``shape``."""
        if name not in tensors or not is_shape(shape) or planes not in range(1, 9):
            refuse(name, otherwise)
        packed = tensors[name]
        if packed.dtype != "uint8" or packed.nbytes != bits.bytes_of(math.prod(shape), planes):
            refuse(name, f"the shape {shape} does not fit {packed.nbytes:,} bytes")

    for name, mask in body["masks"].items():
        check_packed(name, mask["shape"], mask["bits"], "it does not describe a mask")
    for name, rounded in body.get("levels", {}).items():
        kind = rounded["kind"]
        planes = Levels(kind).bits if kind in KINDS else None
        check_packed(name, rounded["shape"], planes, "it does not describe rounded weights")
    drawn = 0
    for name, random in body["random"].items():
        shape, blocks = random["shape"], random.get("blocks", 1)
        if not is_shape(shape) or not (shape or name in tensors or random.get("initialiser") in OF_ANY_SHAPE):
            refuse(name, f"shape {str(shape)[:80]} is invalid")
        rows = shape[0] if shape else 1
        if type(blocks) is not int or not 1 <= blocks <= max(rows, 1) or rows % blocks:
            refuse(name, f"{rows} rows cannot be split into {blocks} blocks")
        if name in tensors and list(tensors[name].shape) != shape:
            refuse(name, f"its shape is {shape}, but the stored tensor has {list(tensors[name].shape)}")
        drawn += 0 if name in tensors else math.prod(shape)
        if drawn > MOST_DRAWN:
            refuse(name, f"with its shape {shape}, the file would need more than {MOST_DRAWN:,} random numbers")


def _draw(name: str, random: dict[str, Any], seed: int) -> Array:
    """Draw a random tensor, and round it if the checkpoint's tensor was rounded to half precision."""
    recipe = {key: value for key, value in random.items() if key not in ("sha256", "rounded")}
    rounding = random.get("rounded", "fp32")
    if rounding not in _ROUNDINGS:
        raise KeyError(rounding)
    return round_to(Recipe.from_json({"name": name, **recipe}).draw_array(seed), rounding)

"""Compare the tensor sizes in an export's description with the tensors of the export's model, before memory is allocated.

Loading draws random tensors and decodes compact forms, so a file of one megabyte may need gigabytes of memory. This check builds the
model on the meta device, without memory, and compares each tensor in the description with the model's tensor.
"""

import math
from typing import Any

import torch

from ..errors import InputError
from ..options.plans import PlanFlags
from ..options.reading import read
from ..text.parts import MOST_SYMBOLS
from . import meta_checkpoint
from .compact import is_shape, refuse_entry
from .dry_build import NEEDS_ITS_TASK

# Smaller tensors are not compared here. fairseq compares them later, and lists all that do not fit.
_SMALL = 2**16
_UNBUILT = 2**26  # maximum number of entries in all tensors of a file if its model cannot be built
# A model has several tensors per layer. A configuration with many more layers than tensors is invalid, and building it takes long.
_LAYERS_PER_NAME, _FEW_LAYERS = 2, 1000


def check(path: str, body: dict[str, Any], shapes: dict[str, list[int]], config: Any) -> None:
    """Check the tensor sizes in the description of an export.

    Args:
        path: path of the file, for error messages.
        body: description of the export.
        shapes: shapes of the stored tensors.
        config: fairseq's configuration of the model.

    Raises:
        InputError: a tensor of the description is not in the model, or has a different shape in the model.
    """
    claimed = {name: list(shape) for name, shape in shapes.items()}
    for group in ("masks", "levels", "random"):
        claimed |= {name: entry["shape"] for name, entry in body.get(group, {}).items()}
    for name, shape in claimed.items():
        if not is_shape(shape):
            refuse_entry(path, name, f"shape {str(shape)[:80]} is invalid")
    _check_layers(path, config, len(claimed) + len(body["tied"]))
    metas = {name: torch.empty(shape, device="meta") for name, shape in claimed.items()}
    words = max(meta_checkpoint.dictionary_sizes(metas))
    if words > MOST_SYMBOLS and any(name not in shapes for name in claimed):
        refuse_entry(path, "the dictionary", f"it has {words:,} entries; at most {MOST_SYMBOLS:,} are allowed")
    try:
        expected = meta_checkpoint.shapes_of(meta_checkpoint.build_model(config, metas))
    except NEEDS_ITS_TASK:
        return  # fairseq builds this model later, with its task; ``reader`` limits the total size of random tensors
    except Exception as error:  # a user-defined kind of layer may raise any exception
        if sum(map(math.prod, claimed.values())) > _UNBUILT:
            raise InputError(f"{path}: its model cannot be built ({type(error).__name__}: {error})") from error
        return  # the cause may be an unregistered kind of layer, which ``unregistered`` reports later
    unknown = 0
    for name, shape in claimed.items():
        size = math.prod(shape)
        if name in expected and tuple(shape) != expected[name] and size > _SMALL:
            refuse_entry(path, name, f"its shape is {shape}, but the model needs {list(expected[name])}")
        unknown += 0 if name in expected else size
    if unknown > sum(map(math.prod, expected.values())) + _SMALL:
        refuse_entry(path, "tensors", f"it lists tensors that the model does not have ({unknown:,} entries in total)")


def _check_layers(path: str, config: Any, names: int) -> None:
    """Refuse a model with many more layers than tensors."""
    flags = read(PlanFlags, config)
    for name in ("encoder_layers", "decoder_layers", "reservoir_encoder", "reservoir_decoder"):
        value = vars(flags)[name]
        layers = value if isinstance(value, int) else len(value) if isinstance(value, str) else 0
        if layers > max(_FEW_LAYERS, _LAYERS_PER_NAME * names):
            refuse_entry(
                path, name, f"the model would have {layers:,} layers, but the file describes only {names:,} tensors"
            )

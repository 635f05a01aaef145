"""Compares the sizes that an export claims with its architecture, before memory is taken for them.

Random tensors are drawn and compact forms unfold, so a file of a megabyte may ask for gigabytes. The model of its configuration is
built on the device ``meta`` first, which costs no memory, and every claim must be one of its tensors.
"""

import math
from typing import Any, NoReturn

import torch

from ..errors import InputError
from ..options.plans import PlanFlags
from ..options.reading import read
from ..text.parts import MOST_SYMBOLS
from . import opened
from .compact import is_shape
from .dry_build import WITHOUT_ITS_TASK

# Tensors of fewer entries are left to fairseq, which names all that do not fit.
_SMALL = 2**16
_UNBUILT = 2**26  # entries that are read of a file whose model cannot be built
# A model has several tensors a layer; configurations of more layers than this many a tensor would take long to build.
_LAYERS_PER_NAME, _FEW_LAYERS = 2, 1000


def check(path: str, body: dict[str, Any], shapes: dict[str, list[int]], config: Any) -> None:
    """Check the claims of an export.

    Args:
        path: of the file, for errors.
        body: its description.
        shapes: of the tensors that it stores.
        config: fairseq's configuration of the model.

    Raises:
        InputError: a tensor would be drawn or unfolded that its model does not have in that shape.
    """
    claimed = {name: list(shape) for name, shape in shapes.items()}
    for group in ("masks", "levels", "random"):
        claimed |= {name: entry["shape"] for name, entry in body.get(group, {}).items()}
    for name, shape in claimed.items():
        if not is_shape(shape):
            _refuse(path, name, f"shape {str(shape)[:80]}")
    _check_layers(path, config, len(claimed) + len(body["tied"]))
    metas = {name: torch.empty(shape, device="meta") for name, shape in claimed.items()}
    words = max(opened.dictionary_sizes(metas))
    if words > MOST_SYMBOLS and any(name not in shapes for name in claimed):
        _refuse(path, "the dictionary", f"{words:,} entries; at most {MOST_SYMBOLS:,} are drawn")
    try:
        expected = opened.shapes_of(opened.build_model(config, metas))
    except WITHOUT_ITS_TASK:
        return  # fairseq builds it with its task; the sum of all that is drawn is limited
    except Exception as error:  # a kind of layer of a user's own may raise any
        if sum(map(math.prod, claimed.values())) > _UNBUILT:
            raise InputError(f"{path}: its model cannot be built ({type(error).__name__}: {error})") from error
        return  # a kind of layer that is not registered here, for example: fairseq's loader names it
    unknown = 0
    for name, shape in claimed.items():
        size = math.prod(shape)
        if name in expected and tuple(shape) != expected[name] and size > _SMALL:
            _refuse(path, name, f"shape {shape}, in its model {list(expected[name])}")
        unknown += 0 if name in expected else size
    if unknown > sum(map(math.prod, expected.values())) + _SMALL:
        _refuse(path, "tensors", f"{unknown:,} entries of tensors that its model does not have")


def _check_layers(path: str, config: Any, names: int) -> None:
    """Refuse a model of many more layers than the file has tensors; building it would take long."""
    flags = read(PlanFlags, config)
    for name in ("encoder_layers", "decoder_layers", "reservoir_encoder", "reservoir_decoder"):
        value = vars(flags)[name]
        layers = value if isinstance(value, int) else len(value) if isinstance(value, str) else 0
        if layers > max(_FEW_LAYERS, _LAYERS_PER_NAME * names):
            _refuse(path, name, f"{layers:,} layers of {names:,} tensors")


def _refuse(path: str, name: str, what: str) -> NoReturn:
    raise InputError(f"{path}: its description of {name[:80]} is not usable: {what}")

"""``regenerate_weights``: draw a layer's random tensors when the layer runs, instead of storing them."""

import logging
from typing import Any

from torch import Tensor, nn

from ..errors import InputError
from ..random_tensors.drawn_in_forward import DrawnLayer, DrawnTensor, drawn_tensor

logger = logging.getLogger(__name__)
_NAMED = 5


def regenerate(model: Any) -> None:
    """Release all random tensors of a model. Before each forward pass of a layer, draw the layer's tensors.

    The outputs have the same bits as with stored tensors.

    A layer is an entry of a stack such as ``encoder.layers``. Outside of stacks, each module with a random tensor counts as a layer, for
    example an embedding. A tensor is not released if its seed does not reproduce its bits, for example after training.

    Args:
        model: a model in evaluation mode, with ``slot_table`` and ``recipes``. Modules with masks may have an attribute ``drawn``,
            their random matrix.

    Raises:
        InputError: nothing can be drawn.
    """
    tensors: dict[str, Tensor] = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    owners = {name: model.get_submodule(name.rpartition(".")[0]) for name in model.recipes if name in tensors}
    drawn: dict[int, DrawnTensor] = {}
    stored = {entry.name for entry in model.slot_table.entries if not entry.trained} & tensors.keys()
    for name, owner in owners.items():
        own_name = name.rpartition(".")[2]
        found = drawn_tensor(owner, own_name, model.recipes[name], model.slot_table.seed, tensors[name])
        if found:
            drawn[id(tensors[name])] = found
            stored.discard(name)
    layers = _tensors_of_layers(model, drawn)
    current = DrawnLayer()
    for layer, of_layer in layers.items():
        current.before(layer, of_layer)
    if not layers and not any("packed" in module._buffers for module in model.modules()):
        raise InputError(
            "--regenerate-weights (regenerate_weights): no tensor of this model is drawn from a seed; remove the option. --freeze alone "
            "keeps the model's initial values, which cannot be drawn again; --frozen-init draws values from a seed"
        )
    if stored:
        names = sorted(stored)
        more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
        logger.info(
            "--regenerate-weights: these frozen tensors are stored, because they cannot be drawn from a seed: %s%s",
            ", ".join(names[:_NAMED]),
            more,
        )


def _tensors_of_layers(model: nn.Module, drawn: dict[int, DrawnTensor]) -> dict[nn.Module, list[DrawnTensor]]:
    """Map each layer to its tensors in ``drawn``. A tied tensor may be in several layers.

    ``drawn`` maps the id of a parameter or buffer to its ``DrawnTensor``.
    """
    modules = dict(model.named_modules(remove_duplicate=False))
    layers: dict[nn.Module, list[DrawnTensor]] = {}
    for place, module in modules.items():
        own = [*module._parameters.values(), *module._buffers.values()]
        found = [drawn[id(tensor)] for tensor in own if id(tensor) in drawn]
        if isinstance(matrix := getattr(module, "drawn", None), DrawnTensor):
            found.append(matrix)
        if found:
            of_layer = layers.setdefault(_layer(modules, place), [])
            of_layer.extend(one for one in found if one not in of_layer)
    return layers


def _layer(modules: dict[str, nn.Module], place: str) -> nn.Module:
    """Return the layer of the module ``place``: the entry of the outermost ``ModuleList`` that contains it, or else the module itself."""
    parts = place.split(".")
    for depth in range(1, len(parts)):
        if isinstance(modules[".".join(parts[:depth])], nn.ModuleList):
            return modules[".".join(parts[: depth + 1])]
    return modules[place]

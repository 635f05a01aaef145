"""Freeze parameters of any torch model by name, and read the masks and the slot table of a model."""

from collections.abc import Iterable
from dataclasses import replace
from fnmatch import fnmatchcase

from torch import Tensor, nn

from ..errors import InputError
from ..layers.quant_noise import protect_frozen
from ..masks.masked_weight import masked_modules, refuse_moving_masks
from ..plan import freeze_spec
from ..plan.slot_table import SlotTable
from .table_of_model import table_of, tied_names


def freeze(model: nn.Module, spec: str | Iterable[str]) -> list[str]:
    """Freeze parameters of a model: set their ``requires_grad`` to False. Call this before the optimizer is made.

    The running statistics of a BatchNorm are not parameters, so they still change in training mode. Checkpoints do not store
    ``requires_grad``. To train with fairseq's trainer and resume, use the flag ``--freeze`` instead.

    Args:
        model: any torch or fairseq model.
        spec: comma-separated items, or a list of items. An item is a path in the model, or a component of fairseq's models such as
            ``att`` or ``encoder.ffn``. A path is the name of a parameter or of a module. A module stands for all parameters in it. A path
            may contain the wildcards ``*``, ``?`` and ``[...]``. An item that is both a path and a component selects the path.

    Returns:
        Names of the parameters that the spec selects, in the order of the model. A tied parameter appears once, under its first
        name. Adapters of ``--frozen-adapter`` and gains of ``--rezero`` are never selected.

    Raises:
        InputError: an item selects nothing, or a mask would still change although its scores are frozen. Nothing is frozen then.

    Example:
        >>> from torch import nn
        >>> from fairseq_reservoir.api import freeze
        >>> model = nn.Transformer(d_model=8, nhead=2, num_encoder_layers=2, num_decoder_layers=1, dim_feedforward=16)
        >>> freeze(model, "encoder.layers.0.linear1, decoder.*.norm1.weight")
        ['encoder.layers.0.linear1.weight', 'encoder.layers.0.linear1.bias', 'decoder.layers.0.norm1.weight']
        >>> model.encoder.layers[0].linear1.weight.requires_grad
        False

        fairseq's Transformers have components:

        >>> from fairseq_reservoir.api import load
        >>> model = load("model.safetensors").models[0]
        >>> freeze(model, "att,encoder.ffn")[:2]
        ['encoder.layers.0.self_attn.k_proj.weight', 'encoder.layers.0.self_attn.k_proj.bias']
    """
    spec = spec if isinstance(spec, str) else ",".join(spec)
    parameters = dict(model.named_parameters())
    owner_of = {name: name for name in parameters}
    owner_of |= {alias: owner for alias, (owner, _) in tied_names(model, parameters).items()}
    names = [name for name in owner_of if freeze_spec.atom(name) not in freeze_spec.ALWAYS_TRAINED]
    selected = {owner_of[name] for item in spec.split(",") for name in _selected(item.strip(), names, model)}
    frozen = {name: parameter for name, parameter in parameters.items() if name in selected}
    refuse_moving_masks(
        model, f"freeze {spec}", [p for p in parameters.values() if not p.requires_grad] + [*frozen.values()]
    )
    for parameter in frozen.values():
        parameter.requires_grad_(False)
    protect_frozen(model)
    return list(frozen)


def _selected(item: str, names: list[str], model: nn.Module) -> set[str]:
    """Return the parameters that ``item`` selects. If it is the path of a module, these are all parameters in the module."""
    below = {name for name in names if fnmatchcase(name, item) or fnmatchcase(name, f"{item}.*")}
    if below or not item:
        found = below
    else:
        try:
            found = freeze_spec.selected(item, names, "freeze")
        except InputError as error:
            modules = " ".join(name for name, _ in model.named_children())
            raise InputError(
                f"{error}; {item!r} is not a path in this model either; the modules of the model: {modules}"
            ) from error
    if not found:
        raise InputError("freeze: an item of the spec is empty; each item must be a component, or a path in the model")
    return found


def masks(model: nn.Module) -> dict[str, Tensor]:
    """Return the current masks of a model: name of the masked module -> bool tensor (rows, columns), True for each kept weight.

    The masked weight is W' = g (W * M) with the random matrix W (``frozen_weight`` of the module), the mask M and a gain g. The entries of
    M are 0 and 1; in signed masks -1, 0 and 1. M may also be a sum of several masks. The result is True where M is not 0.

    To see the masks of a trained model, load its checkpoint with ``(model,), _ =
    fairseq.checkpoint_utils.load_model_ensemble(["checkpoint_best.pt"])``. To load an export, also give the folder with the dictionaries:
    ``arg_overrides={"data": "data-bin"}``.

    Args:
        model: any torch or fairseq model. For a model without masks, the result is empty.

    Raises:
        InputError: the masks are multiplied into the weights, as in a model that ``load`` prepared for translation.

    Example:
        >>> from torch import nn
        >>> from fairseq_reservoir.api import masks
        >>> from fairseq_reservoir.masks.masked_linear import MaskedLinear
        >>> model = nn.Sequential(MaskedLinear(8, 6, keep_ratio=0.25), nn.ReLU(), nn.Linear(6, 2))
        >>> {name: (mask.shape, mask.dtype, int(mask.sum())) for name, mask in masks(model).items()}
        {'0': (torch.Size([6, 8]), torch.bool, 12)}
    """
    found = {name: module.mask != 0 for name, module in masked_modules(model).items()}
    built: SlotTable | None = getattr(model, "slot_table", None)
    if not found and built and any(e.name.endswith(".scores") for e in built.entries):
        raise InputError(
            "masks: this model was prepared for translation, so its masks are multiplied into the weights; load the checkpoint with "
            "fairseq.checkpoint_utils.load_model_ensemble instead"
        )
    return found


def slot_table(model: nn.Module) -> SlotTable:
    """Return the slot table of a model: kind, state, parameters and FLOPs of each layer and of each module outside the layers.

    A parameter is frozen if its ``requires_grad`` is False. FLOPs are counted for the product of one token with each matrix. The counts are
    exact for fairseq's Transformers. In other models, each matrix is assumed to be used once for each token, and the backward pass is
    assumed to compute the gradient of every input.

    Args:
        model: any torch or fairseq model.

    Returns:
        The table. ``print`` shows it as text, a notebook shows it as HTML. ``rows`` has a ``Row`` for each line, ``records()``
        returns a dictionary for each line, and ``to_pandas()`` a ``DataFrame`` if pandas is installed.

    Example:
        >>> from torch import nn
        >>> from fairseq_reservoir.api import freeze, slot_table
        >>> model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
        >>> _ = freeze(model, "0")
        >>> table = slot_table(model)
        >>> table
        <SlotTable: 2 rows, 18 of 58 parameters trained>
        >>> print(table)
        slot   kind  state    parameters  trained  MFLOP/token
        0            frozen           40        0        0.000
        2            trained          18       18        0.000
        total                         58       18        0.000
        trained 31.03% of the parameters, 33.33% of those in matrices; frozen 68.97%
        backward 0.000 MFLOP/token, 33.33% less than with everything trained
        >>> table.records()[0]
        {'slot': '0', 'kind': '', 'state': 'frozen', 'parameters': 40, 'trained': 0, 'MFLOP/token': 6.4e-05}
    """
    parameters = dict(model.named_parameters())
    untrained = [name for name, parameter in parameters.items() if not parameter.requires_grad]
    built: SlotTable | None = getattr(model, "slot_table", None)
    if built and any(entry.trained and entry.name not in parameters for entry in built.entries):
        return built  # the model is prepared for translation: plain weights have replaced scores and latent weights
    seed = built.seed if built else 0
    table = table_of(model, {}, seed, untrained=untrained)
    if built is None:
        return table
    # The table of a built model contains the kinds of its layers and its random tensors. Parameters may have been frozen since.
    backward = {row.place: row.backward_flops for row in table.rows}
    rows = (
        replace(
            row,
            entries=tuple(replace(e, trained=e.trained and e.name not in untrained) for e in row.entries),
            backward_flops=backward[row.place] if row.flops else 0,
        )
        for row in built.rows
    )
    return SlotTable(tuple(rows), seed)

"""``--backskip``: add a ``Backskip`` to wholly frozen layers of a model, and adapt state dicts before the model loads them."""

from typing import Any

from torch import Tensor, nn

from ...errors import InputError
from ...plan import freeze_spec
from ...plan.freeze_spec import BACKSKIPS
from ...plan.layer_plan import Slot
from ..frozen_dtype import frozen_layers
from .backward_skip import WARMUP_UPDATES, Backskip, skipping_backward


def add_backskips(model: nn.Module, plans: dict[str, tuple[Slot, ...]], options: Any) -> None:
    """Add a ``Backskip`` to each wholly frozen layer with a trained tensor below it.

    Decoder layers with attention to the source are left out, because they have two inputs with gradients.

    Raises:
        InputError: the model has no such layer.
    """
    skips = {}
    for place, layer in frozen_layers(model, plans):
        if not any("encoder_attn" in name for name, _ in layer.named_modules()) and _trained_below(model, place):
            width = vars(options)[f"{place.split('.')[0]}_embed_dim"]
            skip = Backskip(
                options.backskip, place, width, options.reservoir_seed, options.backskip_anneal, options.backskip_warmup
            )
            skipping_backward(layer, skip)
            skips[place.replace(".", "_")] = skip
    if not skips:
        plan = ", ".join(f"{stack} {''.join(slot.letter for slot in slots)}" for stack, slots in plans.items())
        raise InputError(
            f"--backskip {options.backskip}: the plan has no layer to skip ({plan}); give a plan with a wholly frozen layer, such as F or "
            "T in an encoder, and a trained tensor below it"
        )
    setattr(model, BACKSKIPS, nn.ModuleDict(skips))


def _trained_below(model: nn.Module, place: str) -> bool:
    """Whether the stack of the layer ``place`` has trained parameters below this layer."""
    stack, depth = place.partition(".layers.")[::2]
    for name, parameter in model.named_parameters(remove_duplicate=False):
        layer = freeze_spec.layer_of(name)
        below = layer[1] < int(depth) if layer else freeze_spec.is_below_layers(name)
        if parameter.requires_grad and below and freeze_spec.plain(name).startswith(f"{stack}."):
            return True
    return False


def fit_state(model: nn.Module, state_dict: dict[str, Tensor], prefix: str, resuming: bool) -> None:
    """Add or remove estimators in a state dict, so that every checkpoint can be loaded with and without ``--backskip``.

    Args:
        model: the model. fairseq's trainer has already set its number of updates.
        state_dict, prefix: as in ``upgrade_state_dict_named``.
        resuming: whether training resumes from the state dict, at the model's number of updates.

    Raises:
        InputError: the state dict lacks an estimator although the warm-up is over. A new estimator would get too few true gradients.
    """
    skips, prefix = getattr(model, BACKSKIPS, None), f"{prefix}{BACKSKIPS}."
    own = skips.state_dict(prefix=prefix) if skips else {}
    if skips and resuming and own.keys() - state_dict.keys():
        _refuse_late(next(iter(skips.values())))
    for name in [name for name in state_dict if name.startswith(prefix) and name not in own]:
        del state_dict[name]
    for name, tensor in own.items():
        state_dict.setdefault(name, tensor)


def _refuse_late(skip: Any) -> None:
    if skip.anneal < 1 and skip.update >= skip.warmup and skip.estimator.needs_true:
        raise InputError(
            f"--backskip-warmup {skip.warmup}: the checkpoint has no {type(skip.estimator).__name__.lower()} estimator, and training "
            f"resumes at update {skip.update}, after the warm-up; give a warm-up that ends after this update, such as "
            f"{skip.update + WARMUP_UPDATES}, or add --reset-optimizer"
        )

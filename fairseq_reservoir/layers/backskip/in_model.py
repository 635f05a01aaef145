"""Gives the wholly frozen layers of a model their skipped backward pass (``--backskip``)."""

from typing import Any

from torch import Tensor, nn

from ...errors import InputError
from ...plan import freeze_spec
from ...plan.layer_plan import Slot
from ..frozen_dtype import frozen_layers
from .backward_skip import NAME, WARMUP_UPDATES, Backskip, skipping_backward


def add_backskips(model: nn.Module, plans: dict[str, tuple[Slot, ...]], options: Any) -> None:
    """Lets the wholly frozen layers of a model skip their backward pass, where nothing but the layer below needs it.

    A decoder's layer that attends to the source has two gradients to hand on, and is left alone.

    Raises:
        InputError: there is no such layer.
    """
    skips = {}
    for place, layer in frozen_layers(model, plans):
        if not any("encoder_attn" in name for name, _ in layer.named_modules()) and _trained_below(model, place):
            width = getattr(options, f"{place.split('.')[0]}_embed_dim")
            skip = Backskip(
                options.backskip, place, width, options.reservoir_seed, options.backskip_anneal, options.backskip_warmup
            )
            skipping_backward(layer, skip)
            skips[place.replace(".", "_")] = skip
    if not skips:
        plan = ", ".join(f"{stack} {''.join(slot.letter for slot in slots)}" for stack, slots in plans.items())
        raise InputError(
            f"--backskip {options.backskip}: no layer to skip ({plan}); a wholly frozen one is needed above something trained, such as F "
            "or T in an encoder"
        )
    setattr(model, NAME, nn.ModuleDict(skips))


def _trained_below(model: nn.Module, place: str) -> bool:
    """Whether a gradient that a layer hands down would reach anything that is trained."""
    stack, depth = place.partition(".layers.")[::2]
    for name, parameter in model.named_parameters(remove_duplicate=False):
        layer = freeze_spec.layer_of(name)
        below = layer[1] < int(depth) if layer else freeze_spec.is_below_layers(name)
        if parameter.requires_grad and below and freeze_spec.plain(name).startswith(f"{stack}."):
            return True
    return False


def fit_state(model: nn.Module, state_dict: dict[str, Tensor], prefix: str, resuming: bool) -> None:
    """Lets any checkpoint be loaded with or without ``--backskip``: estimators belong to a training run, not to the model.

    Args:
        model: with its number of updates, which fairseq's trainer sets before it loads the rest.
        state_dict, prefix: as in ``upgrade_state_dict_named``.
        resuming: whether training goes on at that number.

    Raises:
        InputError: an estimator would begin to learn when hardly an update or none takes a true gradient any more.
    """
    skips, prefix = getattr(model, NAME, None), f"{prefix}{NAME}."
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
            f"--backskip-warmup {skip.warmup}: is over at the checkpoint's update {skip.update}, and there is no estimator of this "
            f"kind in it; give {skip.update + WARMUP_UPDATES}, for instance, or --reset-optimizer"
        )

"""Which layers of a model skip their backward pass, and what fairseq's trainer has to do with it."""

import functools

from fairseq.logging import metrics
from torch import nn

from .errors import InputError
from .frozen_dtype import frozen_layers
from .layer_plan import Slot
from .modules.backskip import NAME, Backskip, skipping_backward
from .transformer_options import FrozenLayerOptions
from .wrap_trainer import wrap_trainer


def add_backskips(model, plans: dict[str, tuple[Slot, ...]], options) -> None:
    """Lets the wholly frozen layers of a model skip their backward pass, where nothing but the layer below needs it.

    A decoder's layer that attends to the source has two gradients to hand on, and is left alone.

    Raises:
        InputError: there is no such layer.
    """
    if not options.backskip:
        return
    skips = {}
    for place, layer in frozen_layers(model, plans):
        if not any("encoder_attn" in name for name, _ in layer.named_modules()):
            width = getattr(options, f"{place.split('.')[0]}_embed_dim")
            skip = Backskip(
                options.backskip, place, width, options.reservoir_seed, options.backskip_anneal, options.backskip_warmup
            )
            skipping_backward(layer, skip)
            skips[place.replace(".", "_")] = skip
    if not skips:
        plan = ", ".join(f"{stack} {''.join(slot.letter for slot in slots)}" for stack, slots in plans.items())
        raise InputError(f"--backskip {options.backskip}: no layer to skip ({plan}); a wholly frozen one is needed, such as F or T in an encoder")
    setattr(model, NAME, nn.ModuleDict(skips))


def fit_state(model, state_dict: dict, prefix: str, resuming: bool) -> None:
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
    if resuming and own.keys() - state_dict.keys():
        _refuse_late(next(iter(skips.values())))
    for name in [name for name in state_dict if name.startswith(prefix) and name not in own]:
        del state_dict[name]
    for name, tensor in own.items():
        state_dict.setdefault(name, tensor)


def _refuse_late(skip):
    if skip.anneal < 1 and skip.update >= skip.warmup and skip.estimator.needs_true:
        raise InputError(
            f"--backskip-warmup {skip.warmup}: is over at the checkpoint's update {skip.update}, and there is no estimator of this "
            f"kind in it; give {skip.update + FrozenLayerOptions.backskip_warmup}, for instance, or --reset-optimizer"
        )


@functools.cache
def install() -> None:
    """Lets the trainer tell estimators, before and after each update and on all processes, and log their cosines; once."""
    wrap_trainer(train_step=_begin_update, set_num_updates=_tell)


def _begin_update(train_step, trainer, *args, **kwargs):
    for skip in _skips_of(trainer):
        skip.begin_update()
    return train_step(trainer, *args, **kwargs)


def _tell(set_num_updates, trainer, num_updates):
    set_num_updates(trainer, num_updates)
    interval = trainer.cfg.common.log_interval
    for skip in _skips_of(trainer):
        skip.set_num_updates(num_updates)
        if skip.cosine is not None and interval and num_updates % interval == 0:
            metrics.log_scalar(f"backskip_cosine_{skip.name}", float(skip.cosine), priority=2000, round=4)
            skip.cosine = None


def _skips_of(trainer):
    return getattr(trainer.get_model(), NAME, nn.ModuleDict()).values()

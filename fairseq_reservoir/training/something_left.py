"""Refuses LayerDrop where an update may so have nothing to train."""

from fairseq.modules import LayerDropModuleList
from fairseq.trainer import Trainer
from torch import nn

from ..errors import InputError
from ..plan.freeze_spec import layer_of


def refuse_layerdrop_of_all(init, trainer: Trainer, cfg, task, model: nn.Module, *args, **kwargs):
    """A hook of the trainer's start, where names are the model's own and the freeze schedule is known.

    LayerDrop leaves out each layer of a stack at random, in some updates all that are trained. If nothing else is, such an update has
    no gradient, and torch stops the training in the middle.

    Raises:
        InputError: one line with the flag.
    """
    dropped = {name: m.p for name, m in model.named_modules() if isinstance(m, LayerDropModuleList) and m.p > 0}
    schedule = getattr(trainer, "freeze_schedule", None)
    rotates = schedule is not None and schedule.rotate is not None
    for frozen in schedule.may_freeze() if schedule and dropped else (frozenset(),):
        trained = [n for n, parameter in model.named_parameters() if parameter.requires_grad and n not in frozen]
        inside = [name for name in trained if name.startswith(tuple(f"{stack}." for stack in dropped))]
        # The layers that are trained for a while may all be such as are left out.
        if inside and (inside == trained or rotates and all(map(layer_of, trained))):
            stack = next(name for name in dropped if inside[0].startswith(f"{name}."))
            flag = f"--{'decoder' if 'decoder' in stack else 'encoder'}-layerdrop {dropped[stack]:g}"
            raise InputError(
                f"{flag}{' with --freeze-rotate' if rotates else ''}: an update that leaves out all trained layers would have nothing to "
                "train; leave it out, or freeze less outside the layers"
            )
    return init(trainer, cfg, task, model, *args, **kwargs)

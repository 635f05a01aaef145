"""A repair of ``--store-ema`` for models of which something is not trained."""

import torch
from fairseq.models.ema.ema import EMA

from .repair import repair, wrap


@repair("moving-average")
def keep_untrained_tensors_in_ema():
    """Keep frozen parameters and constant buffers bit for bit in the copy of ``--store-ema``.

    The moving average is taken of every tensor of the model, but ``d * x + (1 - d) * x`` is not ``x`` when rounded: a
    frozen tensor drifts away from itself, a little with every update; an integer buffer ends the run ("result type
    Float can't be cast to ... Long"). A tensor that is not trained and equals its copy already is its own average.
    """

    def step(original, ema, new_model, updates=None):
        asked = ema.skip_keys
        ema.skip_keys = asked.union(_settled_keys(ema, new_model))
        try:
            original(ema, new_model, updates)
        finally:
            ema.skip_keys = asked

    wrap(EMA, "_step_internal", step)


def _settled_keys(ema, model):
    averages = ema.fp32_params if ema.config.ema_fp32 else ema.model.state_dict()
    trained = {name for name, p in model.named_parameters(remove_duplicate=False) if p.requires_grad}
    for key, tensor in model.state_dict().items():
        if key in trained or not isinstance(tensor, torch.Tensor):
            continue
        average = averages.get(key)
        if not tensor.is_floating_point() or (average is not None and torch.equal(average, tensor.to(average.dtype))):
            yield key

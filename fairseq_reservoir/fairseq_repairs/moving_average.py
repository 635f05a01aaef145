"""Repairs of ``--store-ema``: for models of which something is not trained, and for checkpoints without an average."""

import logging
from types import SimpleNamespace

import torch
from fairseq.file_io import PathManager
from fairseq.models.ema.ema import EMA
from fairseq.trainer import Trainer

from .repair import repair, wrap

logger = logging.getLogger(__name__)
_SINCE = "updates_since_ema"  # in a checkpoint's extra_state


@repair("moving-average")
def keep_untrained_tensors_in_ema():
    """Keep what is not trained bit for bit in the average of ``--store-ema``, and take tied tensors once.

    The moving average is taken of every tensor of the model, but ``d * x + (1 - d) * x`` is not ``x`` when rounded: a
    frozen tensor drifts away from itself, a little with every update; an integer buffer ends the run ("result type
    Float can't be cast to ... Long"). An entry that equals its average already is left as it is; which ones do is found
    out on the device, without waiting for it. What is trained is left to fairseq.

    A tensor of several names, such as embeddings that are the output's weights too, is averaged once for each of them: with two names
    and a decay of 0.9 the new value counts 0.19.
    """

    def step(original, ema, new_model, updates=None):
        trained = {name for name, p in new_model.named_parameters(remove_duplicate=False) if p.requires_grad}
        copied = ema.model.state_dict()
        averages = ema.fp32_params if ema.config.ema_fp32 else copied
        state = _once(new_model.state_dict(), averages)
        left = trained | ema.skip_keys
        ours = {
            k for k, value in state.items() if k not in left and "version" not in k and isinstance(value, torch.Tensor)
        }
        rest = {name: value for name, value in state.items() if name not in ours}
        original(ema, SimpleNamespace(state_dict=lambda: rest), updates)
        for name in ours & averages.keys():
            average, tensor = averages[name], state[name].to(averages[name].dtype)
            if tensor.is_floating_point():
                moved = (average * ema.decay).add_(tensor, alpha=1 - ema.decay)
                tensor = torch.where(average == tensor, average, moved)
            average.copy_(tensor)
            copied[name].copy_(average)

    wrap(EMA, "_step_internal", step)


def _once(state, averages):
    """The entries of a model's state but for those whose average lies where that of an earlier one does."""
    seen, kept = set(), {}
    for name, value in state.items():
        average = averages.get(name)
        if isinstance(average, torch.Tensor) and average.numel():
            place = average.data_ptr(), average.shape, average.stride()
            if place in seen:
                continue
            seen.add(place)
        kept[name] = value
    return kept


@repair("moving-average-start")
def begin_average_from_any_checkpoint():
    """Let ``--store-ema`` begin at the values of a checkpoint that has no average.

    fairseq means to, but has deleted those values from what it has read by then: ``KeyError: 'model'``, with ``--finetune-from-model``
    and for a run that is resumed. With ``--ema-seed-model`` it begins at that model's values, as fairseq says. With
    ``--ema-update-freq`` it goes on to count the updates since the last one that it took, which fairseq begins anew.
    """

    def begin_average(original, trainer, filename, *args, **kwargs):
        flags = trainer.cfg.ema
        if not flags.store_ema:
            return original(trainer, filename, *args, **kwargs)
        flags.store_ema = False
        try:
            extra_state = original(trainer, filename, *args, **kwargs)
        finally:
            flags.store_ema = True
        if "ema" in (extra_state or {}):
            trainer.ema.restore(extra_state["ema"])
            updates = trainer.get_num_updates()  # 0 in a new training that begins with this model
            since = extra_state.get(_SINCE, updates % max(1, flags.ema_update_freq))
            trainer.ema.update_freq_counter = since if updates else 0
            if flags.ema_fp32:
                trainer.ema.build_fp32_params(extra_state.get("ema_fp32_params"))
        elif PathManager.isfile(filename):
            trainer._build_ema()  # of the model as it now is, and not at its first use, which is after an update
            whose = f"--ema-seed-model {flags.ema_seed_model}" if flags.ema_seed_model else "its model"
            logger.warning("--store-ema: %s has no average; the average begins at the values of %s", filename, whose)
        return extra_state

    def count_in_state(original, trainer):
        state = original(trainer)
        if trainer.cfg.ema.store_ema:
            state["extra_state"][_SINCE] = trainer.ema.update_freq_counter
        return state

    wrap(Trainer, "load_checkpoint", begin_average)
    wrap(Trainer, "state_dict", count_in_state)

"""Repairs of ``--store-ema``: for models with frozen tensors, and for checkpoints without an average."""

import contextlib
import logging
from types import SimpleNamespace

import torch
from fairseq.file_io import PathManager
from fairseq.models.ema.ema import EMA

from .repair import repair, wrap

logger = logging.getLogger(__name__)
_SINCE = "updates_since_ema"  # in a checkpoint's extra_state


@repair("moving-average")
def keep_untrained_tensors_in_ema():
    """Keep frozen tensors bit for bit in the average of ``--store-ema``, and average tied tensors once.

    fairseq averages every tensor of the model. With a decay d, ``d * x + (1 - d) * x`` is not exactly ``x`` in floating point, so a frozen
    tensor changes a little with every update. An integer buffer ends the run ("result type Float can't be cast to ... Long"). With this
    repair, fairseq averages only trained tensors. For the other tensors, the repair keeps each entry of the average that already equals the
    current value, and averages only the entries that differ.

    Without this repair, fairseq averages a tied tensor once for each of its names. With two names and a decay of 0.9, the new value then
    has a weight of 0.19 in the average, not 0.1.
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
    """Return a model's state dict in which each tied average occurs only once, under its first name."""
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
    """Let the average of ``--store-ema`` begin at the model's weights if the checkpoint has no average.

    fairseq deletes the loaded weights before it builds the average, so ``--finetune-from-model`` and resuming end with ``KeyError:
    'model'``. With ``--ema-seed-model`` the average begins at the weights of that model, as fairseq documents. This repair also restores
    the number of updates since the last average, for ``--ema-update-freq``. ``ReservoirTrainer`` calls the three functions below.
    """


@contextlib.contextmanager
def average_loaded_later(trainer):
    """Context in which fairseq loads a checkpoint but not the average in it. ``begin_average`` loads the average afterwards."""
    flags = trainer.cfg.ema
    if not (begin_average_from_any_checkpoint.is_applied and flags.store_ema):
        yield
        return
    flags.store_ema = False
    try:
        yield
    finally:
        flags.store_ema = True


def begin_average(trainer, filename: str, extra_state: dict | None) -> None:
    """Restore the average from a loaded checkpoint. If the checkpoint has no average, begin at the weights of the model."""
    flags = trainer.cfg.ema
    if not (begin_average_from_any_checkpoint.is_applied and flags.store_ema):
        return
    if extra_state and "ema" in extra_state:
        trainer.ema.restore(extra_state["ema"])
        updates = trainer.get_num_updates()  # 0 in a new training that begins with this model
        since = extra_state.get(_SINCE, updates % max(1, flags.ema_update_freq))
        trainer.ema.update_freq_counter = since if updates else 0
        if flags.ema_fp32:
            trainer.ema.build_fp32_params(extra_state.get("ema_fp32_params"))
    elif PathManager.isfile(filename):
        trainer._build_ema()  # fairseq would build it after the first update
        whose = f"--ema-seed-model {flags.ema_seed_model}" if flags.ema_seed_model else "its model"
        logger.warning("--store-ema: %s has no average; the average begins at the weights of %s", filename, whose)


def add_counter(trainer, state: dict) -> dict:
    """Add the number of updates since the last average to the state of the trainer, and return the state."""
    if begin_average_from_any_checkpoint.is_applied and trainer.cfg.ema.store_ema:
        state["extra_state"][_SINCE] = trainer.ema.update_freq_counter
    return state

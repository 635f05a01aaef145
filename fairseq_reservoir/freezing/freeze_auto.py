"""``--freeze-auto`` in fairseq's trainer: looks at the layers once an interval, and adds what has learned to the freeze schedule."""

import contextlib
import inspect
import logging
from collections.abc import Iterable, Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from ..errors import InputError
from ..masks.masked_weight import masked_modules
from ..plan import freeze_spec
from .freeze_schedule import FLAG_AUTO, FreezeSchedule
from .plasticity import Plasticity, similarities

logger = logging.getLogger(__name__)

# Of the first batch of the training, how many sentences the layers are asked about, and at most at how many positions in them all.
SENTENCES, POSITIONS = 32, 256
# What a batch of sentences has for a model.
_GIVEN = ("src_tokens", "src_lengths", "prev_output_tokens")


class FreezeAuto:
    """What of a model has learned: the sentences it is asked about, what it said last, and what was frozen when.

    Up to 32 sentences of the first batch of rank 0 are kept; after every interval rank 0 passes them through the model, without dropout,
    and decides by ``Plasticity``; all other processes are told. What has learned is one more entry of the schedule,
    from that update on, and everything else follows from the schedule. All of this is part of the optimizer's state in a checkpoint.

    Args:
        schedule: to be extended; its ``parts`` are what may freeze, ``auto_interval`` and ``auto_threshold`` say how it is decided.
    """

    def __init__(self, schedule: FreezeSchedule):
        self.schedule, self.interval = schedule, schedule.auto_interval
        self.plasticity = Plasticity((part.name for part in schedule.parts), schedule.auto_threshold)
        self.probe: dict[str, Any] | None = None
        self.looked_at = 0

    def look(self, trainer, update: int) -> None:
        """At the end of an interval, lets rank 0 decide what freezes, and freezes it on all processes."""
        if update % self.interval or update == self.looked_at or not self.plasticity.names:
            return
        self.looked_at = update
        learned, values = self._decide(trainer) if trainer.data_parallel_rank == 0 else ([], {})
        if trainer.data_parallel_world_size > 1:
            group, told = trainer.data_parallel_process_group, [(learned, values)]
            dist.broadcast_object_list(told, src=dist.get_global_rank(group, 0), group=group)
            learned, values = told[0]
        self.plasticity.drop(learned)
        for name in learned:
            change = self.schedule.freeze(name, update)
            value, largest = values[name]
            logger.info(
                "%s; it changed by %.3g since the last look, at most by %.3g",
                self.schedule.line(change),
                value,
                largest,
            )

    def _decide(self, trainer):
        if self.probe is None:
            return [], {}  # nothing was trained yet
        names, padding = self.plasticity.names, trainer.task.source_dictionary.pad()
        at = {name: positions(self._words(name), padding) for name in names}
        sample, _ = trainer._prepare_sample({"net_input": self.probe})
        outputs = outputs_of(trainer.get_model(), names, sample["net_input"], at)
        learned = self.plasticity.look({name: similarities(rows) for name, rows in outputs.items()})
        return learned, {name: (self.plasticity.values[name], self.plasticity.largest[name]) for name in learned}

    def _words(self, layer):
        """What a layer's outputs stand for, (batch, time)."""
        target = self.probe.get("prev_output_tokens") if layer.startswith("decoder.") else None
        return self.probe["src_tokens"] if target is None else target

    def state_dict(self) -> dict[str, Any]:
        """For a checkpoint."""
        frozen = [(c.update, c.spec) for c in self.schedule.changes if c.flag == FLAG_AUTO]
        return {
            "frozen": frozen,
            "plasticity": self.plasticity.state_dict(),
            "probe": self.probe,
            "looked_at": self.looked_at,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.schedule.forget_learned()
        for update, name in state["frozen"]:
            self.schedule.freeze(name, update)
        self.plasticity.load_state_dict(state["plasticity"])
        self.probe, self.looked_at = state["probe"], state["looked_at"]


def check_model(task, model: nn.Module) -> None:
    """Refuses, before the training, what would fail at the first look: a model that asks for more than sentences.

    Raises:
        InputError: the task has no dictionary of what the layers read, as that of speech, or the model wants more than a batch's
            sentences, as one that is not autoregressive wants its targets.
    """
    words = None
    with contextlib.suppress(NotImplementedError, AttributeError):
        words = task.source_dictionary
    if words is None:
        raise InputError(f"{FLAG_AUTO}: the sources of this task are no sentences of a dictionary; leave it out")
    more = [
        name
        for name, parameter in inspect.signature(model.forward).parameters.items()
        if parameter.default is parameter.empty
        and parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
        and name not in _GIVEN
    ]
    if more:
        raise InputError(
            f"{FLAG_AUTO}: this model needs {', '.join(more)} beside the sentences of a batch; leave it out"
        )


def keep_probe_batch(trainer, samples) -> None:
    """Keep the first sentences that rank 0 trains on as the probe of ``--freeze-auto``."""
    auto = trainer.freeze_auto
    if auto is not None and auto.probe is None and trainer.data_parallel_rank == 0:
        auto.probe = next((first_sentences(sample) for sample in samples if sample), None)


def first_sentences(sample: Mapping[str, Any]) -> dict[str, Any]:
    """What a model is given of a batch, of its first sentences only, on the processor.

    Raises:
        InputError: the task's batches are not of sentences.
    """
    given = sample.get("net_input", {})
    tokens = given.get("src_tokens")
    if tokens is None:
        raise InputError(f"{FLAG_AUTO}: the batches of this task have no src_tokens; leave it out")
    return {
        name: value[:SENTENCES].detach().cpu().clone()
        if torch.is_tensor(value) and value.dim() and len(value) == len(tokens)
        else value
        for name, value in given.items()
    }


def positions(words: torch.Tensor, padding: int | None) -> list[int]:
    """Of (batch, time) words, time after time, at most ``POSITIONS`` that are no padding, evenly spaced."""
    real = [i for i, word in enumerate(words.T.reshape(-1).tolist()) if word != padding]
    return real[:: max(1, -(-len(real) // POSITIONS))]


@torch.no_grad()
def outputs_of(
    model: nn.Module, names: Iterable[str], net_input: Mapping[str, Any], at: Mapping[str, list[int]]
) -> dict[str, torch.Tensor]:
    """What layers give out for some sentences, without dropout. Reads no value.

    Args:
        model: the whole model; it is left in the mode in which it was.
        names: of layers, as in ``encoder.layers.0``.
        net_input: what the model is given.
        at: layer -> the ``positions`` that are kept of its outputs, (time, batch, features).

    Returns:
        layer -> (positions, features).
    """
    found: dict[str, torch.Tensor] = {}
    modules = {freeze_spec.plain(name): module for name, module in model.named_modules(remove_duplicate=False)}

    def keep(name):
        def hook(module, inputs, output):
            rows = (output[0] if isinstance(output, tuple) else output).flatten(0, -2)
            # A recurrent layer is called for every time and gives a row for each sentence, the last time last.
            places = at[name] if len(rows) > at[name][-1] else range(len(rows))
            found[name] = rows.index_select(0, torch.tensor(places, device=rows.device))

        return hook

    hooks = [modules[name].register_forward_hook(keep(name)) for name in names]
    was_training = model.training
    with contextlib.ExitStack() as after:
        for hook in hooks:
            after.callback(hook.remove)
        for cache in {module.mask_cache for module in masked_modules(model).values()}:
            after.enter_context(cache.preserved())
        after.callback(model.train, was_training)
        model.eval()
        model(**net_input)
    return found

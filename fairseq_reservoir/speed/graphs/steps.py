"""Training steps of padded batches. The first step of a shape runs as usual, the second is recorded, and later steps are replayed."""

import logging
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ..known_padding import mark
from . import criteria, padding
from .gradients import Gradients
from .packed import PACKED, PackedBatch

logger = logging.getLogger(__name__)

Shape = tuple[int, ...]
_MOST = 200  # maximum number of recordings, if shapes change between epochs


@dataclass
class Recording:
    """A recorded step.

    Attributes:
        tokens: the tensor with all tokens that a replay reads (``PackedBatch.flat``).
        names: names of the logged tensors.
        replay: a function that replays the step and returns the logged tensors.
        held: references to tensors of the model that are not parameters or buffers, such as fairseq's mask of future tokens. fairseq
            replaces the mask when a longer sentence occurs, but a replay still reads the old mask.
    """

    tokens: Tensor
    names: list[str]
    replay: Callable[[], list[Tensor]]
    held: list[Tensor]


class GraphedSteps:
    """Forward and backward passes of padded batches, replayed from recordings.

    A recording contains all operations that compute the gradients from the tokens of a batch. In a small model, the GPU runs these
    operations several times faster than Python launches them. Clearing gradients, clipping, the optimizer and logging are not recorded. A
    replay computes the same bits as an ordinary step of the same padded batch, with the same dropout.

    All recordings are dropped in three cases: a parameter or buffer moves in memory, a parameter is frozen or unfrozen, or the keep ratio
    of a mask changes.

    Args:
        recorder: a ``GraphRecorder``.
        usual: the task's own ``train_step``, for batches that are not padded.
        masks: the modules with masked weights. Every recording includes the selection of their masks.
        log_interval: number of updates between two logs of ``mask_flips``, the fraction of mask entries that an update changes.
        several: whether several ranks train.
    """

    def __init__(
        self,
        recorder: Any,
        usual: Callable[..., Any],
        masks: Sequence[Any] = (),
        log_interval: int = 0,
        several: bool = False,
    ) -> None:
        self.recorder, self.usual, self.several = recorder, usual, several
        self._masks, self.log_interval = list(masks), log_interval
        self.padder: padding.Padder | None = None  # None until the batches of an epoch are known
        self.recordings: OrderedDict[Shape, Recording] = OrderedDict()
        self.needed: dict[Shape, int] = {}  # bytes that the first step of each shape has allocated
        self.gradients: Gradients | None = None
        self.scale: Tensor | None = None
        self.tokens = [0, 0]  # before and after padding
        self.kinds = {"replayed": 0, "recorded": 0, "ordinary": 0}
        self._state: Any = None
        self._held: list[Tensor] = []

    def packed(self, sample: Any) -> Any:
        """Pad and pack a batch. Return the batch unchanged if the data loader has packed it or no bucket holds it."""
        return sample if self.padder is None or isinstance(sample, PackedBatch) else self.padder(sample)

    def train_step(
        self,
        sample: Any,
        model: Any,
        criterion: Any,
        optimizer: Any,
        update_num: int,
        ignore_grad: bool = False,
        **more: Any,
    ) -> tuple[Tensor, int, dict[str, Any]]:
        """Run the forward and backward pass of a batch, with the interface of ``FairseqTask.train_step``."""
        # A replay calls no hooks, such as those that fairseq adds to find a NaN.
        shape = None if ignore_grad or more or _is_watched(model) else sample.get(padding.BUCKET)
        if shape is None:
            self.kinds["ordinary"] += 1
            result: tuple[Tensor, int, dict[str, Any]] = self.usual(
                sample, model, criterion, optimizer, update_num, ignore_grad, **more
            )
            return result
        model.train()
        model.set_num_updates(update_num)
        self._follow(model)
        self._set_scale(optimizer)
        if self.gradients is not None:
            self.gradients.attach()
        recording = self.recordings.get(shape)
        if recording is None and self.gradients is not None and self._may_record(shape):
            recording = self._record(shape, sample, model, criterion)
        if recording is None:
            log = self._first(shape, sample, model, criterion)
        else:
            log = self._replay(shape, recording, sample, update_num)
        if hasattr(optimizer, "_needs_sync"):  # tells fairseq's half-precision optimizers that there are new gradients
            optimizer._needs_sync = True
        for i, tokens in enumerate(sample[padding.TOKENS]):
            self.tokens[i] += tokens
        numbers = criteria.counts(criterion, sample, self.several)
        return log["loss"], numbers["sample_size"], {**log, **numbers}

    def _compute(self, sample: dict[str, Any], model: Any, criterion: Any) -> tuple[list[str], list[Tensor]]:
        loss, log = criteria.forward(criterion, model, sample)
        scaled = loss if self.scale is None else (loss.float() * self.scale).to(loss.dtype)
        scaled.backward()
        return list(log), list(log.values())

    def _first(self, shape: Shape, sample: Any, model: Any, criterion: Any) -> dict[str, Tensor]:
        """Run an ordinary step. The first ordinary step of a training also finds the parameters that get a gradient."""
        mark(sample, always=True)
        (names, values), self.needed[shape] = self.recorder.measured(lambda: self._compute(sample, model, criterion))
        if self.gradients is None:
            self.gradients = Gradients([p for p in model.parameters() if p.requires_grad])
        self.kinds["ordinary"] += 1
        return dict(zip(names, values))

    def _may_record(self, shape: Shape) -> bool:
        needed = self.needed.get(shape)
        if needed is None:
            return False
        while len(self.recordings) >= _MOST or not self.recorder.has_room(needed):
            if not self.recordings:
                return False
            self.recordings.popitem(last=False)
            if not self.recordings:  # the pool is freed with its last recording
                self.recorder.forget()
        return True

    def _record(self, shape: Shape, sample: Any, model: Any, criterion: Any) -> Recording:
        batch = sample[PACKED].clone()
        own = batch.batch()
        mark(own, always=True)
        names: list[str] = []

        def run() -> list[Tensor]:
            names[:], values = self._compute(own, model, criterion)
            return values

        self._forget_masks()  # so that the recording contains their selection
        replay = self.recorder.record(run, self.needed[shape])
        self._forget_masks()
        self.kinds["recorded"] += 1
        self.recordings[shape] = recording = Recording(batch.flat, names, replay, _loose_tensors(model))
        return recording

    def _replay(self, shape: Shape, recording: Recording, sample: Any, update_num: int) -> dict[str, Tensor]:
        self.recordings.move_to_end(shape)
        recording.tokens.copy_(sample[PACKED].flat, non_blocking=True)
        if self.log_interval and (update_num + 1) % self.log_interval in (0, self.log_interval - 1):
            for masked in self._masks:  # ``mask_flips`` compares the masks of both updates
                masked.mask_cache.get(masked)
        values = [value.clone() for value in recording.replay()]
        self.kinds["replayed"] += 1
        return dict(zip(recording.names, values))

    def _follow(self, model: nn.Module) -> None:
        """Drop all recordings if a tensor has a new address, a parameter is frozen or unfrozen, or a keep ratio has changed."""
        if not self._held:
            self._held = [*model.parameters(), *model.buffers()]
        state = ([(t.data_ptr(), t.requires_grad) for t in self._held], [m.keep_ratios for m in self._masks])
        if state == self._state:
            return
        if self.recordings:
            logger.info(
                "--cuda-graphs: %d recorded shapes are dropped, because the model has changed", len(self.recordings)
            )
        self._state = state
        self.forget()

    def collect_tensors_again(self) -> None:
        """Let the next step collect the parameters and buffers of the model again, because a task may have replaced some."""
        self._held = []

    def describe(self) -> str:
        """Describe recordings, replays, padding and memory for the log."""
        before, after = self.tokens
        replayed = self.kinds["replayed"]
        return (
            f"{len(self.recordings)} recorded shapes, {replayed} of {replayed + self.kinds['ordinary']} steps replayed, "
            f"{after / max(1, before):.3f} times as many tokens as without padding, {self.recorder.mib()} MiB reserved"
        )

    def drop_recordings(self) -> None:
        """Drop all recordings and their memory. The next step of each shape is recorded again."""
        self.recordings.clear()
        self.recorder.forget()

    def forget(self) -> None:
        """Drop all recordings, the memory of the gradients, and the memory that each shape needs."""
        self.drop_recordings()
        self.needed.clear()
        self.gradients = None

    def _set_scale(self, optimizer: Any) -> None:
        """Copy the loss scale of ``--fp16`` to the device, because recordings read it there."""
        scaler = getattr(optimizer, "scaler", None)
        if scaler is None:
            return
        if self.scale is None:
            self.scale = torch.ones((), device=next(iter(self._held)).device)
        self.scale.fill_(float(scaler.loss_scale))

    def _forget_masks(self) -> None:
        for masked in self._masks:
            masked.mask_cache.forget()


def _is_watched(model: Any) -> bool:
    """Whether the model, or the distributed wrapper around it, has hooks."""
    while not model._forward_hooks:
        model = model._modules.get("module")
        if model is None:
            return False
    return True


def _loose_tensors(model: nn.Module) -> list[Tensor]:
    """Return the tensors of a model that are neither parameters nor buffers."""
    return [value for module in model.modules() for value in vars(module).values() if isinstance(value, Tensor)]

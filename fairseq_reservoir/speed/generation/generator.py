"""fairseq's ``SequenceGenerator`` with captured steps."""

import logging
import os
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from fairseq.sequence_generator import SequenceGenerator
from torch import Tensor

from ...options.command_options import GENERATION_GRAPHS, ON_CPU
from ..fast_attention import without_plans
from . import decoder_checks
from .engine import Engine, recorder_of
from .search_step import Settings

logger = logging.getLogger(__name__)
# For each model: its engine, and the key with everything on which the engine depends. Generators of a model share its graphs.
_engines: weakref.WeakKeyDictionary[Any, tuple[Any, Engine]] = weakref.WeakKeyDictionary()
_streams: dict[torch.device, Any] = {}
# For each model: the reasons that have been logged.
_noted: weakref.WeakKeyDictionary[Any, set[str]] = weakref.WeakKeyDictionary()
_NO_EFFECT = "has no effect"
# Threads take turns, because all searches of a model write to the same tensors.
_turn = threading.Lock()


def note(model: Any, reason: str) -> None:
    """Log the reason why a model uses fairseq's own search. Each reason is logged once."""
    reasons = _noted.setdefault(model, set())
    if reason not in reasons:
        reasons.add(reason)
        what = reason if reason.startswith(_NO_EFFECT) else f"fairseq's own search is used: {reason}"
        logger.info("--cuda-graphs: %s", what)


class GraphedGenerator(SequenceGenerator):
    """``SequenceGenerator`` that replays one CUDA graph per step and returns the same hypotheses.

    Scores differ from fairseq's only by rounding, because products of padded batches can be summed in a different order. Hypotheses with
    almost equal scores may therefore swap ranks, especially in half precision. Hypotheses contain no attention weights. Only
    ``--print-alignment`` needs the weights, and with this flag fairseq uses another generator class.

    Results are tensors on the CPU. The tensors of the batch are moved to the CPU too, because fairseq-generate reads the source token
    by token, and each read would wait for the device.

    If the captured step does not support a batch or a model, fairseq's own method runs. The log has one line for each reason.
    """

    def _generate(
        self,
        sample: dict[str, Any],
        prefix_tokens: Tensor | None = None,
        constraints: Tensor | None = None,
        bos_token: int | None = None,
    ) -> list[list[dict[str, Tensor]]]:
        reason = self._unsupported(sample, prefix_tokens, constraints)
        if reason is None:
            with _turn:
                try:
                    return self._generate_graphed(sample, self.eos if bos_token is None else bos_token)
                except torch.OutOfMemoryError:
                    _engines.pop(self.model.single_model, None)
                    reason = "a batch needs too much memory"
            torch.cuda.empty_cache()  # only here, because the traceback inside the except block keeps tensors alive
        note(self.model.single_model, reason)
        return super()._generate(sample, prefix_tokens, constraints, bos_token)

    def _unsupported(self, sample: Any, prefix_tokens: Any, constraints: Any) -> str | None:
        """Return why captured steps do not support a batch or the model; None if they support both."""
        if self.model.single_model.training:
            return "the model is in training mode"
        if "src_tokens" not in sample["net_input"]:
            return "the source is not text"
        if prefix_tokens is not None:
            return "--prefix-size"
        if constraints is not None:
            return "--constraints"
        device = next(self.model.single_model.parameters()).device
        if device.type != "cuda" and os.environ.get(GENERATION_GRAPHS) != ON_CPU:
            return f"{_NO_EFFECT} on the device {device.type}"
        if torch.is_autocast_enabled(device.type):
            return "autocast is enabled"
        model = self.model.single_model
        return (
            decoder_checks.unsupported_search(self)
            or decoder_checks.unsupported_model(model)
            or decoder_checks.unsupported_length(model.decoder, self._last_step(sample) + 1)
        )

    def _last_step(self, sample: dict[str, Any]) -> int:
        """Return the step at which fairseq ends every hypothesis of a batch."""
        longest = sample["net_input"]["src_tokens"].size(1)
        return int(min(int(self.max_len_a * longest + self.max_len_b), self.max_len - 1))

    # A later search could not change tensors that were created in inference mode.
    @torch.inference_mode(False)
    @torch.no_grad()
    def _generate_graphed(self, sample: dict[str, Any], first_token: int) -> list[list[dict[str, Tensor]]]:
        model = self.model.single_model
        device = model.decoder.embed_tokens.weight.device
        net_input = {
            name: value.to(device) if isinstance(value, Tensor) else value
            for name, value in sample["net_input"].items()
        }
        tokens = net_input["src_tokens"]
        last_step = self._last_step(sample)
        assert self.min_len <= last_step, "min_len cannot be larger than max_len, please adjust these!"
        with _side_stream(device):
            engine = self._engine(model, device)
            with without_plans(model.decoder.embed_tokens.weight):
                encoded = self.model.forward_encoder(net_input)[0]
            memory = encoded["encoder_out"][0]
            padding = encoded["encoder_padding_mask"]
            blocked = padding[0].bool() if padding else torch.zeros_like(tokens, dtype=torch.bool)
            len_penalty = self.len_penalty if self.normalize_scores else None
            found = engine.search(memory, blocked, first_token, last_step, len_penalty)
        _move_to_cpu(sample)
        return found

    def _engine(self, model: Any, device: torch.device) -> Engine:
        """Return the engine of a model. Create a new engine if settings have changed or tensors of the model have moved."""
        suppressed = self.token_indices_to_suppress
        settings = Settings(
            beam_size=self.beam_size,
            vocab_size=self.vocab_size,
            pad=self.pad,
            unk=self.unk,
            eos=self.eos,
            unk_penalty=self.unk_penalty,
            min_len=self.min_len,
            temperature=self.temperature,
            suppressed=() if suppressed is None else tuple(suppressed.tolist()),
        )
        # The tensors of the whole model, because adapters of the decoder can use tensors that are registered elsewhere.
        tensors = (*model.parameters(), *model.buffers())
        key = settings, tuple((tensor.data_ptr(), tensor.dtype) for tensor in tensors)
        known, engine = _engines.get(model, (None, None))
        if known != key or engine is None:
            engine = Engine(model.decoder, settings, recorder_of(device))
            _engines[model] = key, engine
        return engine


@contextmanager
def _side_stream(device: torch.device) -> Iterator[None]:
    """Run the block on a side stream of a CUDA device, as a capture requires. Afterwards the current stream waits for the side stream."""
    if device.type != "cuda":
        yield
        return
    if device not in _streams:
        _streams[device] = torch.cuda.Stream(device)
    stream, outer = _streams[device], torch.cuda.current_stream(device)
    stream.wait_stream(outer)
    try:
        with torch.cuda.stream(stream):
            yield
    finally:
        outer.wait_stream(stream)


def _move_to_cpu(sample: dict[str, Any]) -> None:
    """Move the tensors of a batch to the CPU, in place."""
    for group in (sample, sample["net_input"]):
        for name, value in group.items():
            if isinstance(value, Tensor):
                group[name] = value.cpu()

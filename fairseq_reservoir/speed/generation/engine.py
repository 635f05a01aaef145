"""Run the steps of a beam search: choose a shape, capture its step, and move the search to a smaller or larger shape."""

import logging
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..graph_recorder import GraphRecorder, Run
from . import buckets
from .buckets import Sizes
from .decoder_step import DecoderStep
from .hypotheses import read_hypotheses
from .search_step import SearchStep, Settings
from .state import State, new_state

logger = logging.getLogger(__name__)

# The number of unfinished sentences is read after this many steps. Reading waits for the device, but steps after the end are wasted.
STEPS_PER_LOOK = 4
MOST_SHAPES = 30
# With fewer logits than this, a step takes about the same time for any number of sentences, so a smaller shape saves nothing.
LOGITS_WORTH_A_SHAPE = 2**23
# The states of all shapes may use this share of the device's memory.
_MEMORY_SHARE = 0.25
Hypotheses = list[dict[str, Tensor]]


@dataclass
class _Shape:
    """A shape with its state, and the step that changes this state. The step runs once before it is captured."""

    sizes: Sizes
    state: State
    step: Run
    runs: int = 0
    replay: Run | None = None


class Engine:
    """Beam search of one model with captured steps.

    Args:
        decoder: a decoder that ``decoder_checks`` supports.
        settings: settings of the search.
        recorder: captures steps as CUDA graphs. None if steps run without graphs, as on a CPU or after a failed capture.
    """

    def __init__(self, decoder: Any, settings: Settings, recorder: GraphRecorder | None) -> None:
        self.settings, self.recorder = settings, recorder
        self.device = decoder.embed_tokens.weight.device
        self.decoder_step = DecoderStep(decoder)
        self.search_step = SearchStep(settings, self.device)
        self.shapes: OrderedDict[Sizes, _Shape] = OrderedDict()
        self._last: Run | None = None  # keeps the memory of the graphs usable if all shapes with graphs are dropped
        self.most_bytes = _most_bytes(self.device)

    def search(
        self, memory: Tensor, padding: Tensor, first_token: int, last_step: int, len_penalty: float | None
    ) -> list[Hypotheses]:
        """Find the best hypotheses of a batch.

        Args:
            memory: the encoder's output, (tokens, sentences, dim).
            padding: (sentences, tokens), bool.
            first_token: the decoder's first input token.
            last_step: step at which all hypotheses end, counted from 0.
            len_penalty: exponent of the length in scores; None without normalisation.

        Returns:
            The hypotheses of each sentence in fairseq's format, the best first.
        """
        sentences, tokens = padding.shape
        source = buckets.source_length(tokens)
        shape = self._shape(Sizes(buckets.batch_size(sentences), source, buckets.first_steps(source)))
        shape.state.begin(sentences, first_token, last_step)
        shape.state.put_source(padding, self.decoder_step.project_source(memory))
        found: list[Hypotheses] = [[] for _ in range(sentences)]
        places = list(range(sentences))

        def collect() -> None:
            """Store the hypotheses of finished sentences."""
            read = read_hypotheses(shape.state, done, len(places), self.settings.eos, len_penalty)
            for place, hypotheses in zip(places, read, strict=True):
                if hypotheses is not None:
                    found[place] = hypotheses

        done = 0
        while True:
            for _ in range(min(STEPS_PER_LOOK, last_step + 1 - done)):
                if done == shape.sizes.steps:
                    shape = self._move(shape, places, 2 * done)
                self._run(shape)
                done += 1
            left = int(shape.state.unfinished)
            if not left or done > last_step:
                collect()
                return found
            fewer = self._fewer_sentences(shape, left, last_step + 1 - done)
            if fewer is not None:
                collect()
                shape, places = self._shrink(shape, places, left, fewer)

    def _run(self, shape: _Shape) -> None:
        if shape.replay is None and shape.runs and self.recorder is not None:
            try:
                shape.replay = self._last = self.recorder.record(shape.step)
            except RuntimeError as error:
                self.recorder = None
                reason = str(error).partition("\n")[0]
                logger.warning("--cuda-graphs: a step could not be captured and runs without a graph: %s", reason)
        shape.runs += 1
        (shape.replay or shape.step)()

    def _move(self, shape: _Shape, places: list[int], steps: int) -> _Shape:
        """Continue the search in a shape with more steps."""
        larger = self._shape(Sizes(shape.sizes.batch, shape.sizes.source, steps), current=shape)
        rows = torch.arange(shape.sizes.batch, device=self.device)
        larger.state.put_rows(shape.state, rows, len(places))
        return larger

    def _fewer_sentences(self, shape: _Shape, left: int, steps: int) -> int | None:
        """Return the number of sentences in a smaller shape; None if a smaller shape saves no time in the remaining ``steps``."""
        logits = shape.sizes.batch * self.settings.beam_size * self.settings.vocab_size
        if logits < LOGITS_WORTH_A_SHAPE or steps <= 2 * STEPS_PER_LOOK:
            return None
        return buckets.fewer_sentences(shape.sizes.batch, left)

    def _shrink(self, shape: _Shape, places: list[int], left: int, fewer: int) -> tuple[_Shape, list[int]]:
        """Move the unfinished sentences (``left`` is their number) to a shape for ``fewer`` sentences.

        Return the new shape, and the index of each moved sentence in the batch.
        """
        smaller = self._shape(Sizes(fewer, shape.sizes.source, shape.sizes.steps), current=shape)
        order = torch.argsort(shape.state.finished.long(), stable=True)[:fewer]
        smaller.state.put_rows(shape.state, order, left)
        return smaller, [places[row] for row in order[:left].tolist()]

    def _shape(self, sizes: Sizes, current: _Shape | None = None) -> _Shape:
        """Find or create the shape with these sizes. If there are too many shapes, drop the least recently used, but not ``current``."""
        if sizes not in self.shapes:
            caches = self.decoder_step.new_caches(sizes.batch, sizes.source, sizes.steps, self.settings.beam_size)
            state = new_state(sizes, self.settings.beam_size, caches, self.device)
            # Not ``self``: a cycle would keep the memory of a dropped engine until Python's garbage collector runs.
            search, decode = self.search_step, self.decoder_step
            self.shapes[sizes] = _Shape(sizes, state, lambda: search(state, decode(state)))
        self.shapes.move_to_end(sizes)
        kept = {sizes, current.sizes} if current else {sizes}
        while len(self.shapes) > len(kept) and self._is_too_much():
            oldest = next(other for other in self.shapes if other not in kept)
            del self.shapes[oldest]
        return self.shapes[sizes]

    def _is_too_much(self) -> bool:
        used = sum(shape.state.bytes() for shape in self.shapes.values())
        return len(self.shapes) > MOST_SHAPES or used > self.most_bytes


def _most_bytes(device: torch.device) -> float:
    if device.type != "cuda":
        return torch.inf
    return _MEMORY_SHARE * torch.cuda.get_device_properties(device).total_memory


def recorder_of(device: torch.device) -> GraphRecorder | None:
    """Return a recorder for a GPU, and None for other devices."""
    return GraphRecorder(device) if device.type == "cuda" else None

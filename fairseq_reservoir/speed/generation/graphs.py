"""Run a function of fixed shapes again and again: as a CUDA graph, or, in tests on a CPU, as the function itself."""

import logging
from collections.abc import Callable
from typing import Any

import torch

from ..capture import capture

logger = logging.getLogger(__name__)
Function = Callable[[], None]


class Recorder:
    """Stand-in for ``GraphRecorder`` that calls the function at each replay."""

    def record(self, function: Function) -> Function:
        """Return a function that repeats the work of ``function``, which is not run now."""
        return function


class GraphRecorder(Recorder):
    """Captures functions as CUDA graphs that share one memory pool.

    The current stream must not be the default stream. Every captured function must have run once on it before, because libraries
    allocate their workspaces at the first call. A function writes its results to tensors that exist before the capture. If a capture
    fails, this and all later functions run without a graph.
    """

    def __init__(self) -> None:
        self.pool = torch.cuda.graph_pool_handle()
        self.has_failed = False
        # One graph is kept, because a pool cannot be used again after its last graph is gone.
        self.last: Any = None

    def record(self, function: Function) -> Function:
        if self.has_failed:
            return function
        try:
            return self._captured(function)
        except RuntimeError as error:
            self.has_failed = True
            logger.warning(
                "--cuda-graphs: a step could not be captured and runs without a graph: %s",
                str(error).partition("\n")[0],
            )
            return function

    def _captured(self, function: Function) -> Function:
        torch.cuda.current_stream().synchronize()
        graph, _ = capture(function, self.pool)
        self.last = graph
        return graph.replay

"""Run a function of fixed shapes again and again: as a CUDA graph, or, in tests on a CPU, as the function itself."""

import gc
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import torch

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
        graph = torch.cuda.CUDAGraph()
        torch.cuda.current_stream().synchronize()
        # A collected graph or event would call CUDA functions that are not allowed during a capture. torch.cuda.graph runs the
        # collector instead, which takes longer than the capture.
        was_enabled = gc.isenabled()
        gc.disable()
        try:
            graph.capture_begin(pool=self.pool, capture_error_mode="thread_local")
            try:
                function()
            except BaseException:
                with suppress(RuntimeError):  # a failed capture cannot end either, and its error would hide the cause
                    graph.capture_end()
                raise
            graph.capture_end()
        finally:
            if was_enabled:
                gc.enable()
        self.last = graph
        return graph.replay

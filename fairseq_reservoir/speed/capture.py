"""Capture the kernels of a function as a CUDA graph, for trainings and for the beam search."""

import gc
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import torch


def capture(run: Callable[[], Any], pool: Any) -> tuple[torch.cuda.CUDAGraph, Any]:
    """Capture the kernels that a function launches on the current stream, without running them.

    Args:
        run: a function that neither reads values of the device nor copies from ordinary memory of the host.
        pool: memory pool of the graph; None for a new one.

    Returns:
        The graph, and the function's result, which every replay writes anew.
    """
    graph = torch.cuda.CUDAGraph()
    # A collected graph or event would call CUDA functions that are not allowed during a capture. torch.cuda.graph runs the collector
    # instead, which takes longer than the capture.
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        graph.capture_begin(pool=pool, capture_error_mode="thread_local")
        try:
            result = run()
        except BaseException:
            with suppress(RuntimeError):  # a failed capture cannot end either, and its error would hide the cause
                graph.capture_end()
            raise
        graph.capture_end()
    finally:
        if was_enabled:
            gc.enable()
    return graph, result

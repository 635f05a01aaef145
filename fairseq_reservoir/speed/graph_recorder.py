"""Record functions as CUDA graphs, for training steps and for the beam search."""

import gc
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import torch

_SPARE = 2**28  # bytes of device memory that stay free beside the graphs
Run = Callable[[], Any]


class GraphRecorder:
    """Record functions as CUDA graphs that share one pool of memory. The graphs never run at the same time.

    All work must run on one stream that is not the default stream. torch cannot record on the default stream, and a backward pass runs on
    the stream of its forward pass. A function must have run once on this stream before it is recorded, because libraries allocate their
    workspaces at the first call. A pool cannot be used again after its last graph is deleted, so the caller must keep a graph or call
    ``forget``.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.largest = 0
        self.pool: Any = None

    def measured(self, run: Run) -> tuple[Any, int]:
        """Call a function. Return its result and the peak of the device memory that it allocates, in bytes."""
        torch.cuda.reset_peak_memory_stats(self.device)
        before = torch.cuda.memory_allocated(self.device)
        result = run()
        return result, torch.cuda.max_memory_allocated(self.device) - before

    def has_room(self, needed: int) -> bool:
        """Whether the device has memory left for a graph of a function that allocates ``needed`` bytes.

        Check this before a recording. If memory runs out during a recording, torch's random generator cannot be used afterwards.
        """
        # A pool also grows for a smaller graph, because its free memory is in pieces.
        missing = needed - self.largest + needed // 4 + _SPARE
        if torch.cuda.mem_get_info(self.device)[0] > missing:
            return True
        torch.cuda.empty_cache()
        return torch.cuda.mem_get_info(self.device)[0] > missing

    def record(self, run: Run, needed: int | None = None) -> Run:
        """Record the kernels that a function launches on the current stream, without running them.

        Args:
            run: a function that does not read values from the device and does not copy from unpinned memory of the host.
            needed: bytes that ``run`` allocates (see ``measured``). If given, torch's cached memory is freed first, because a graph cannot
                use it.

        Returns:
            A function that replays the kernels and returns the result of ``run``. Every replay writes to the same memory.
        """
        torch.cuda.synchronize(self.device)
        if needed is not None:
            torch.cuda.empty_cache()
        graph = torch.cuda.CUDAGraph()
        # A collected graph or event would call CUDA functions that are not allowed during a capture. torch.cuda.graph runs the
        # collector instead, which takes longer than the capture.
        was_enabled = gc.isenabled()
        gc.disable()
        try:
            graph.capture_begin(pool=self.pool, capture_error_mode="thread_local")
            try:
                result = run()
            except BaseException:
                with suppress(RuntimeError):  # ending a failed capture fails too, and that error would hide the cause
                    graph.capture_end()
                raise
            graph.capture_end()
        finally:
            if was_enabled:
                gc.enable()
        self.pool = self.pool or graph.pool()
        if needed is not None:  # only now, because a failed recording has added no memory to the pool
            self.largest = max(self.largest, needed)

        def replay() -> Any:
            graph.replay()
            return result

        return replay

    def forget(self) -> None:
        """Start with a new pool. The old pool is freed together with its last graph."""
        self.pool, self.largest = None, 0

    def mib(self) -> int:
        """Return the device memory that torch has reserved, in MiB."""
        return torch.cuda.memory_reserved(self.device) // 2**20

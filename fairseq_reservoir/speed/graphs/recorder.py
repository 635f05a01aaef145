"""Record functions as CUDA graphs. A stand-in runs them again, for tests on a CPU."""

from collections.abc import Callable
from typing import Any

import torch

from ..capture import capture

_SPARE = 2**28  # bytes of device memory that stay free beside the graphs
Run = Callable[[], Any]


class CudaRecorder:
    """Record functions as CUDA graphs that share one pool of memory. They never run at the same time.

    All work of the training runs on one stream that is not the default stream, because torch records on such a stream only, and because
    a backward pass runs on the stream of the forward pass that created its nodes.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.pool: Any = None
        self.largest = 0
        torch.cuda.synchronize(device)
        torch.cuda.set_stream(torch.cuda.Stream(device))

    def measured(self, run: Run) -> tuple[Any, int]:
        """Call a function. Return its result, and the device memory in bytes that it has allocated at most."""
        torch.cuda.reset_peak_memory_stats(self.device)
        before = torch.cuda.memory_allocated(self.device)
        result = run()
        return result, torch.cuda.max_memory_allocated(self.device) - before

    def has_room(self, needed: int) -> bool:
        """Whether the device has memory left for a graph whose function allocates ``needed`` bytes.

        A recording must not run out of memory, because torch's random generator is unusable afterwards.
        """
        missing = needed - self.largest + _SPARE
        if torch.cuda.mem_get_info(self.device)[0] > missing:
            return True
        torch.cuda.empty_cache()
        return torch.cuda.mem_get_info(self.device)[0] > missing

    def record(self, run: Run, needed: int) -> Run:
        """Record the kernels of a function without running them.

        Args:
            run: a function that neither reads values of the device nor copies from ordinary memory of the host.
            needed: bytes that it allocates, as ``measured`` returned.

        Returns:
            A function that replays the kernels and returns the function's result. Every replay writes to the same memory.
        """
        torch.cuda.synchronize(self.device)
        # A graph cannot use the memory that torch keeps from earlier steps.
        torch.cuda.empty_cache()
        graph, result = capture(run, self.pool)
        self.pool = self.pool or graph.pool()
        self.largest = max(self.largest, needed)

        def replay() -> Any:
            graph.replay()
            return result

        return replay

    def forget(self) -> None:
        """Start with a new pool. The old one is freed together with its last graph."""
        self.pool, self.largest = None, 0

    def mib(self) -> int:
        """Device memory that torch has reserved, in MiB."""
        return torch.cuda.memory_reserved(self.device) // 2**20


class Rerun:
    """Stand-in for ``CudaRecorder``: a replay calls the function again and writes to the result of the first replay."""

    def measured(self, run: Run) -> tuple[Any, int]:
        return run(), 0

    def has_room(self, needed: int) -> bool:
        return True

    def record(self, run: Run, needed: int) -> Run:
        written: list[Any] = []

        def replay() -> list[Any]:
            result = run()
            if not written:
                written.extend(result)
            for old, new in zip(written, result):
                old.copy_(new)
            return written

        return replay

    def forget(self) -> None:
        pass

    def mib(self) -> int:
        return 0

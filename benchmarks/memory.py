"""Peak memory of training steps, of each arm in a process of its own.

On a CPU it is how far the process's resident memory at its highest (``ru_maxrss``) exceeds what it was before the model was built: parameters,
gradients, optimizer state, activations and what torch's allocator keeps, without interpreter and libraries. On a CUDA device it
is ``torch.cuda.max_memory_allocated``, which counts tensors.
"""

import multiprocessing
import resource
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import torch

from benchmarks import models


def peak(make_arm, arguments, steps, threads=None):
    """Bytes.

    Args:
        make_arm: a class or a function of a module, whose result has ``step()``.
        arguments: what to call it with.
        steps: how often ``step`` is called; the optimizer has its state after the first.
        threads: of torch.
    """
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as process:
        return process.submit(_peak_here, make_arm, arguments, steps, threads).result()


def _peak_here(make_arm, arguments, steps, threads):
    models.import_plugin(threads)
    before = _resident_now()
    arm = make_arm(*arguments)
    for _ in range(steps):
        arm.step()
    return torch.cuda.max_memory_allocated() if torch.cuda.is_initialized() else _highest() - before


def _resident_now():
    """Linux says it in pages; elsewhere the highest until now has to do, some MiB more after the imports."""
    pages = Path("/proc/self/statm")
    return int(pages.read_text().split()[1]) * resource.getpagesize() if pages.exists() else _highest()


def _highest():
    """Linux counts it in KiB, macOS in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)

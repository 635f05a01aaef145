"""Peak memory of training steps, of each arm in a process of its own.

On a CPU it is how far the process's resident memory at its highest exceeds what it was before the model was built: parameters,
gradients, optimizer state, activations, what torch's allocator keeps, and some 40 MiB of torch's code that the first step
reads in; not interpreter and libraries otherwise. On a CUDA device it is ``torch.cuda.max_memory_allocated``, which counts tensors.
"""

import multiprocessing
import re
import resource
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
    """Where only the highest is known, what the imports had for a moment is missing from the result."""
    return _status("VmRSS") or _highest()


def _highest():
    """``ru_maxrss`` of Linux is of no use here: a process begins with that of the one that started it."""
    return _status("VmHWM") or resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def _status(entry):
    """Bytes of an entry of Linux's ``/proc/self/status``, None elsewhere."""
    status = Path("/proc/self/status")
    found = re.search(rf"^{entry}:\s+(\d+) kB$", status.read_text(), re.MULTILINE) if status.exists() else None
    return found and 1024 * int(found[1])

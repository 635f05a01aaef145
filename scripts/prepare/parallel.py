"""Apply a function to many lines in parallel, and keep their order."""

import multiprocessing
import os
import signal
import threading
import time

from prepare.text import blocks

CHUNK = 2000

_function = None


def map_lines(make, lines, jobs):
    """Yield ``make()(line)`` for each of ``lines``.

    Args:
        make: picklable function that creates the function, called once in each process.
        jobs: number of processes. With 1, no process is started.
    """
    if jobs == 1:
        yield from map(make(), lines)
        return
    with multiprocessing.Pool(jobs, _begin, (make,)) as pool:
        # In blocks, because a pool would read all input before it returns output.
        for block in blocks(lines, CHUNK * jobs * 4):
            yield from pool.imap(_call, block, CHUNK)


def _begin(make):
    global _function
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, args=(os.getppid(),), daemon=True).start()
    _function = make()


def _call(line):
    return _function(line)


def _end_with_parent(parent):
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(1)

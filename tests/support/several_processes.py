"""Several processes that train one model again and again, without a start of Python for each run."""

import tempfile
from pathlib import Path

import torch
from fairseq.distributed import utils as distributed_utils

from tests.support import warm_start
from tests.support.commands import TINY, train


def in_processes(count, function, *arguments):
    """What ``function(rank, *arguments)`` gives in each of ``count`` new processes; a function of a module."""
    with tempfile.TemporaryDirectory() as folder:
        job = (folder, function, arguments)
        warm_start.start_server()
        # A fork of a process that has asked for a GPU cannot use one.
        method = "spawn" if torch.cuda.is_available() else "forkserver"
        torch.multiprocessing.start_processes(_call, job, nprocs=count, start_method=method)
        return [torch.load(Path(folder) / str(rank)) for rank in range(count)]


def _call(rank, folder, function, arguments):
    torch.set_num_threads(1)
    torch.save(function(rank, *arguments), Path(folder) / str(rank))


def train_as(rank, count, meeting, data, *flags, begin=TINY):
    """``train`` as one of ``count`` processes, which meet in a file that is not there yet."""
    vars(distributed_utils.get_global_group).pop("_global_group", None)  # of the run before
    distributed = ["--distributed-world-size", count, "--distributed-rank", rank, "--distributed-no-spawn"]
    return train(data, *flags, *distributed, "--distributed-init-method", f"file://{meeting}", begin=begin)

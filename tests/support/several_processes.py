"""Several ranks that train one model repeatedly, without starting Python for each run."""

import tempfile
from pathlib import Path

import torch
from fairseq.distributed import utils as distributed_utils

from tests.support import warm_start
from tests.support.commands import TINY, train


def in_processes(count, function, *arguments):
    """Call ``function(rank, *arguments)``, a function of a module, in ``count`` new processes. Return their results."""
    with tempfile.TemporaryDirectory() as folder:
        job = (folder, function, arguments)
        warm_start.start_server()
        # A process that has initialised a GPU cannot be forked.
        method = "spawn" if torch.cuda.is_available() else "forkserver"
        torch.multiprocessing.start_processes(_call, job, nprocs=count, start_method=method)
        return [torch.load(Path(folder) / str(rank)) for rank in range(count)]


def _call(rank, folder, function, arguments):
    torch.set_num_threads(1)
    torch.save(function(rank, *arguments), Path(folder) / str(rank))


def train_as(rank, count, meeting, data, *flags, begin=TINY):
    """Call ``train`` as one of ``count`` ranks, which synchronise through a new file."""
    vars(distributed_utils.get_global_group).pop("_global_group", None)  # from the previous run
    distributed = ["--distributed-world-size", count, "--distributed-rank", rank, "--distributed-no-spawn"]
    return train(data, *flags, *distributed, "--distributed-init-method", f"file://{meeting}", begin=begin)

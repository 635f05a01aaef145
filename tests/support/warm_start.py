"""Processes of their own that need not import torch and fairseq, most of the time of a training of a few updates.

A server without any state of the tests imports both once; every process is a fork of it (``forkserver`` of multiprocessing). The
plugin is not imported there: each process loads it as a fresh one does.
"""

import atexit
import functools
import importlib
import multiprocessing
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import torch

CONTEXT = torch.multiprocessing.get_context("forkserver")
multiprocessing.set_forkserver_preload(["fairseq_cli.train", "fairseq_cli.generate", "torch.utils.checkpoint"])


def run_command(program, *words, cwd=None, env=None) -> subprocess.CompletedProcess:
    """A console script of fairseq, ``fairseq-train`` and the like, run to its end in a process of its own.

    Args:
        program: its name.
        words: its arguments.
        cwd, env: as of ``subprocess.run``.
    """
    command = [program, *map(str, words)]
    with tempfile.TemporaryDirectory() as folder:
        said = [str(Path(folder) / name) for name in ("out", "err")]
        process = CONTEXT.Process(target=_be, args=(command, said, str(cwd or Path.cwd()), dict(env or os.environ)))
        process.start()
        process.join()
        out, err = (Path(name).read_text(errors="replace") for name in said)
    return subprocess.CompletedProcess(command, process.exitcode, out, err)


def _be(command, said, cwd, env):
    """This process as the interpreter of ``command``: its streams, its environment, its way of ending."""
    for number, name in enumerate(said, 1):
        os.dup2(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
    # pytest's own streams came along with the fork.
    sys.stdout, sys.stderr = open(1, "w", closefd=False), open(2, "w", closefd=False, buffering=1)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    sys.argv = command
    # Processes that fairseq or the plugin starts are forks of the server too.
    torch.multiprocessing.spawn = functools.partial(torch.multiprocessing.start_processes, start_method="forkserver")
    status = 0
    try:
        importlib.import_module(f"fairseq_cli.{command[0].removeprefix('fairseq-')}").cli_main()
    except SystemExit as leaving:
        status = leaving.code
        if isinstance(status, str):
            print(status, file=sys.stderr)
    except BaseException:
        status = 1
        try:
            sys.excepthook(*sys.exc_info())
        except SystemExit as leaving:
            status = leaving.code
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status if isinstance(status, int) else int(bool(status)))

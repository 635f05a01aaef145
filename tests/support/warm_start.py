"""Processes of their own that need not import torch and fairseq, most of the time of a training of a few updates.

A server without any state of the tests imports both once; every process is a fork of it (``forkserver`` of multiprocessing). The
plugin is not imported there: each process loads it as a fresh one does.
"""

import atexit
import contextlib
import functools
import importlib
import multiprocessing
import multiprocessing.forkserver
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import torch

CONTEXT = torch.multiprocessing.get_context("forkserver")
# fairseq-train's log is what the first import of fairseq sets up.
multiprocessing.set_forkserver_preload(["fairseq_cli.train", "tests.support.warm_imports"])
# What the console scripts call that are not fairseq's.
OTHER_PROGRAMS = {
    "fairseq-reservoir": "fairseq_reservoir_cli:main",
    "ct2-fairseq-converter": "ctranslate2.converters.fairseq:main",
}


@functools.cache
def start_server():
    """Once, and from the folder above ``tests``, where the server finds what it is to import, whatever folder a test is in."""
    with contextlib.chdir(Path(__file__).parents[2]):
        multiprocessing.forkserver.ensure_running()


def run_command(program, *words, cwd=None, env=None) -> subprocess.CompletedProcess:
    """A console script, fairseq's or one of ``OTHER_PROGRAMS``, run to its end in a process of its own.

    Args:
        program: its name.
        words: its arguments.
        cwd, env: as of ``subprocess.run``.
    """
    command = [program, *map(str, words)]
    return run_function(be_program, command, cwd=cwd, env=env)


def run_function(function, *arguments, cwd=None, env=None) -> subprocess.CompletedProcess:
    """``function(*arguments)``, a function of a module, as the whole of what a process does."""
    start_server()
    with tempfile.TemporaryDirectory() as folder:
        said = [str(Path(folder) / name) for name in ("out", "err")]
        surroundings = (said, str(cwd or Path.cwd()), dict(env or os.environ))
        process = CONTEXT.Process(target=_be, args=(function, arguments, surroundings))
        process.start()
        process.join()
        out, err = (Path(name).read_text(errors="replace") for name in said)
    return subprocess.CompletedProcess(arguments, process.exitcode, out, err)


def be_program(command):
    """Do as the interpreter does for a console script; ``command`` is its name and its arguments."""
    fairseqs = f"fairseq_cli.{command[0].removeprefix('fairseq-').replace('-', '_')}:cli_main"
    module, function = OTHER_PROGRAMS.get(command[0], fairseqs).split(":")
    sys.argv = command
    getattr(importlib.import_module(module), function)()


def be_code(text):
    """Do as the interpreter does for ``python -c``."""
    exec(text, {"__name__": "__main__"})


def spawn(fn, args=(), nprocs=1, join=True, daemon=False, *, surroundings):
    """``torch.multiprocessing.spawn``, but the processes are forks of the server too.

    Args:
        fn, args, nprocs, join, daemon: as of the original.
        surroundings: files for what is said on stdout and stderr, the folder and the environment: forks have those of the server.
    """
    if multiprocessing.parent_process():
        # A process of the server knows where the server is, and would all the same start another.
        multiprocessing.forkserver._forkserver.ensure_running = lambda: None
    else:
        start_server()
    rank_of = functools.partial(_be_rank, fn, surroundings)
    return torch.multiprocessing.start_processes(rank_of, args, nprocs, join, daemon, start_method="forkserver")


def _be_rank(function, surroundings, rank, *arguments):
    _enter(*surroundings)
    try:
        return function(rank, *arguments)
    finally:
        sys.stdout.flush()


def _enter(said, cwd, env):
    """Take streams, folder and environment for those of this process."""
    for number, name in enumerate(said, 1):
        # Processes that write into one file each write at its end.
        os.dup2(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_APPEND), number)
    # pytest's own streams came along with the fork.
    sys.stdout, sys.stderr = open(1, "w", closefd=False), open(2, "w", closefd=False, buffering=1)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)


def _be(function, arguments, surroundings):
    """This process as an interpreter: its streams, its environment, its way of starting others and of ending."""
    _enter(*surroundings)
    multiprocessing.set_start_method(None, force=True)  # for DataLoader; what the server forks would start a server
    torch.multiprocessing.spawn = functools.partial(spawn, surroundings=surroundings)
    status = 0
    try:
        function(*arguments)
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

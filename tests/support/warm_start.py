"""New processes without the time to import torch and fairseq, which is most of the time of a short training.

A server without test state imports both once. Every process is a fork of it (``forkserver`` of multiprocessing). The plugin is not
imported there; each process imports it as a fresh one would.
"""

import atexit
import contextlib
import functools
import importlib
import multiprocessing
import multiprocessing.forkserver
import os
import runpy
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

import torch

CONTEXT = torch.multiprocessing.get_context("forkserver")
# The first import of fairseq sets up fairseq-train's log.
multiprocessing.set_forkserver_preload(["fairseq_cli.train", "tests.support.warm_imports"])
# Entry points of the console scripts other than fairseq's.
OTHER_PROGRAMS = {
    "fairseq-reservoir": "fairseq_reservoir_cli:main",
    "ct2-fairseq-converter": "ctranslate2.converters.fairseq:main",
}


@functools.cache
def start_server():
    """Start the server once, from the folder above ``tests``, where it finds its modules."""
    with contextlib.chdir(Path(__file__).parents[2]):
        multiprocessing.forkserver.ensure_running()


def run_command(program, *words, cwd=None, env=None) -> subprocess.CompletedProcess:
    """Run a console script, fairseq's or one of ``OTHER_PROGRAMS``, in a new process and wait for its end.

    Args:
        program: its name.
        words: its arguments.
        cwd, env: as for ``subprocess.run``.
    """
    command = [program, *map(str, words)]
    return run_function(be_program, command, cwd=cwd, env=env)


def run_function(function, *arguments, cwd=None, env=None) -> subprocess.CompletedProcess:
    """Run ``function(*arguments)``, a function of a module, as the only work of a new process."""
    start_server()
    with tempfile.TemporaryDirectory() as folder:
        said = [str(Path(folder) / name) for name in ("out", "err")]
        surroundings = (said, str(cwd or Path.cwd()), dict(env or os.environ))
        process = CONTEXT.Process(target=be_process, args=(function, arguments, surroundings))
        process.start()
        process.join()
        out, err = (Path(name).read_text(errors="replace") for name in said)
    return subprocess.CompletedProcess(arguments, process.exitcode, out, err)


def be_program(command):
    """Act as the interpreter for a console script, or as ``python FILE.py`` or ``python -m``. ``command`` is its name and its arguments."""
    if command[0] == "python":
        return _be_python(*command[1:])
    fairseqs = f"fairseq_cli.{command[0].removeprefix('fairseq-').replace('-', '_')}:cli_main"
    module, function = OTHER_PROGRAMS.get(command[0], fairseqs).split(":")
    sys.argv = command
    getattr(importlib.import_module(module), function)()


def _be_python(first, *others):
    if first == "-m":
        sys.argv, sys.path[:0] = list(others), [os.getcwd()]
        runpy.run_module(others[0], run_name="__main__", alter_sys=True)
    else:
        sys.argv, sys.path[:0] = [first, *others], [str(Path(first).parent)]
        runpy.run_path(first, run_name="__main__")


def be_code(text):
    """Act as the interpreter for ``python -c``."""
    exec(text, {"__name__": "__main__"})


def spawn(fn, args=(), nprocs=1, join=True, daemon=False, *, surroundings):
    """``torch.multiprocessing.spawn`` with forks of the server.

    Args:
        fn, args, nprocs, join, daemon: as in the original.
        surroundings: files for stdout and stderr, the folder and the environment, because forks have those of the server.
    """
    if multiprocessing.parent_process():
        # A process of the server has the server's address, but would still start another server.
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
    """Set the streams (names of files, or file descriptors), folder and environment of this process."""
    for number, stream in enumerate(said, 1):
        # All processes append to the file, because several may write to it.
        opened = stream if isinstance(stream, int) else os.open(stream, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(opened, number)
    # The fork has inherited pytest's own streams.
    sys.stdout, sys.stderr = open(1, "w", closefd=False), open(2, "w", closefd=False, buffering=1)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    if env.get("PYTHONWARNINGS") == "ignore":
        warnings.simplefilter("ignore")


def be_process(function, arguments, surroundings):
    """Set up this process like a new interpreter: streams, environment, start of other processes, and exit."""
    _enter(*surroundings)
    # For DataLoader, because a fork of the server would start a server.
    multiprocessing.set_start_method(None, force=True)
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

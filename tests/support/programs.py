"""Programs for bash scripts under test that start in the server of ``warm_start``, which has imported torch and fairseq.

``fairseq-train`` and the others are bash functions in the environment of the script. They call ``client.py``, which imports no package. It
sends its arguments, environment and streams to this process, which runs the program as a fork of the server and returns its exit status.
"""

import functools
import json
import os
import shlex
import socket
import sys
import tempfile
import threading
from multiprocessing.reduction import DupFd
from pathlib import Path

from tests.support.warm_start import CONTEXT, OTHER_PROGRAMS, be_process, be_program, start_server

FAIRSEQS = "train generate interactive preprocess validate score eval-lm".split()
NAMES = ["python", *(f"fairseq-{name}" for name in FAIRSEQS), *OTHER_PROGRAMS]
CLIENT = Path(__file__).with_name("client.py")


def environment(**more):
    """Return the environment of a bash script: this process's, the interpreter's folder on PATH, the programs, and ``more``.

    With ``DRY_RUN``, the programs are those on PATH, because a recipe prints them and runs functions.
    """
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    functions = {} if more.get("DRY_RUN") else {f"BASH_FUNC_{name}%%": _function(name) for name in NAMES}
    return {**os.environ, "PATH": path, "OMP_NUM_THREADS": "1", **functions, **more}


def command_of(program, *words):
    """Return the command that runs a program with arguments, for ``subprocess.run``, which can give it a standard input."""
    return [sys.executable, "-IS", str(CLIENT), _address(), program, *map(str, words)]


def _function(name):
    return f'() {{ {shlex.join(command_of(name))} "$@"; }}'


@functools.cache
def _address():
    """Start to serve clients in threads, and return the address."""
    start_server()
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(address := str(Path(tempfile.mkdtemp()) / "programs"))
    listener.listen()
    threading.Thread(target=_serve, args=(listener,), daemon=True).start()
    return address


def _serve(listener):
    while True:
        connection, _ = listener.accept()
        threading.Thread(target=_answer, args=(connection,), daemon=True).start()


def _answer(connection):
    with connection:
        _, streams, _, _ = socket.recv_fds(connection, 1, 3)
        command, folder, variables = json.loads(connection.makefile().read())
        given = (command, [_Stream(number) for number in streams], folder, variables)
        process = CONTEXT.Process(target=_begin, args=given)
        process.start()
        for number in streams:
            os.close(number)
        process.join()
        connection.sendall(str(process.exitcode).encode())


class _Stream:
    """A file descriptor that a new process of the server receives as its own."""

    def __init__(self, number):
        self.number = number

    def __reduce__(self):
        return _received, (DupFd(self.number),)


def _received(duplicate):
    return duplicate.detach()


def _begin(command, streams, folder, variables):
    os.dup2(streams[0], 0)
    sys.stdin = open(0, closefd=False)
    sys.path[:0] = [path for path in variables.get("PYTHONPATH", "").split(os.pathsep) if path not in sys.path]
    be_process(be_program, (command,), (streams[1:], folder, variables))

"""One run of a sweep: its commands, and the files in its folder.

command   the commands, quoted as for a shell
state     "waiting", "running STEP", "done" or "failed STEP STATUS". A run whose folder cannot be used has the state "damaged", which is not
          written to the file
lock      The sweep and the running command hold an flock on this file. Therefore no run is started twice, even after a sweep was killed.
          The file contains the host, the process number of the sweep, and the process number of the command.
"""

import contextlib
import fcntl
import os
import shlex
import shutil
import signal
import socket
import stat
import subprocess
import sys
import time
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from ...errors import InputError, whole_number
from ...files import (
    fault_of_own_file,
    is_alive,
    open_own_file,
    read_regular,
    read_text,
    replacing,
    why,
    why_unreadable,
)
from .mending import mended_state
from .steps import Step

# If one of these signals ends a run, the run counts as interrupted, not as failed, and is resumed later.
INTERRUPTS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
_NOT_STARTED = 127  # a shell's exit status for a command that it cannot start
_GRACE_SECONDS = 10
_STATES = ("waiting", "running", "done", "failed")
_MOST = 1 << 24  # largest size of the files command, state and lock, in bytes
_LARGEST_PROCESS = 1 << 22  # limit of process numbers on Linux
# Threads that spin while they wait make other busy processes several times slower. A value that the user has set takes precedence.
WAITING = {"OMP_WAIT_POLICY": "passive"}


@dataclass(frozen=True)
class Run:
    """A run of a sweep.

    Attributes:
        name: name of the run and its folder.
        folder: folder of the run.
        environment: environment variables for all commands of the run, in addition to the variables of the sweep.
        steps: the commands of the run. Each command starts after the previous one has succeeded.
    """

    name: str
    folder: Path
    environment: dict[str, str]
    steps: tuple[Step, ...]

    @property
    def commands(self) -> str:
        variables = "".join(f"{name}={shlex.quote(value)} " for name, value in self.environment.items())
        return "".join(f"{variables}{shlex.join(step.words)}\n" for step in self.steps)

    @property
    def state(self) -> list[str]:
        """The words of the file ``state``, such as ["failed", "train", "1"]. A missing word is replaced by "?".

        The state of a damaged run is ["damaged", REASON]. A damaged run is neither due nor finished.
        """
        words = []
        try:
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                words = read_text(self.folder / "state", _MOST).split()
            words = words or ["waiting"]
            if words[0] not in _STATES:
                return ["damaged", f"state begins with {_shortened(words[0])}; must be one of {', '.join(_STATES)}"]
            if words[0] != "done" and (fault := self._fault()):
                return ["damaged", fault]
        except OSError as error:
            return ["damaged", f"state {why_unreadable(error)}"]
        return words + ["?"] * ({"failed": 3, "running": 2}.get(words[0], 1) - len(words))

    def _fault(self) -> str:
        """Return the reason why the files of the run cannot be used, such as "lock is a link"; "" if they can be used."""
        try:
            if not stat.S_ISDIR(self.folder.lstat().st_mode):
                return f"the folder {fault_of_own_file(self.folder, in_place=False) or 'is a file'}"
        except (FileNotFoundError, NotADirectoryError):
            return ""
        replaced = ("command", "state")
        for name in (*replaced, "lock", *(step.log.name for step in self.steps)):
            try:
                if fault := fault_of_own_file(self.folder / name, in_place=name not in replaced):
                    return f"{name} {fault}"
                if name == "command" and (written := self._written_commands()) and written != _encoded(self.commands):
                    written.decode()
            except OSError as error:
                return f"{name} {why_unreadable(error)}"
            except UnicodeDecodeError:
                return f"{name} is not UTF-8"
        return ""

    def _written_commands(self) -> bytes | None:
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            return read_regular(self.folder / "command", _MOST)
        return None

    def is_due(self, retry_failed: bool) -> bool:
        """Return whether the run should be started.

        A waiting or interrupted run is due. A failed run is due if ``retry_failed`` is True.
        """
        word = self.state[0]
        return word in ("waiting", "running") or word == "failed" and retry_failed

    def check(self) -> None:
        """Check that the commands exist, and that the folder is new or belongs to this run.

        A damaged folder is accepted, because the other runs of the sweep can continue.

        Raises:
            InputError: a command does not exist, or the folder belongs to a run with different commands or to no run at all.
        """
        for step in self.steps:
            if shutil.which(step.words[0], path=_path(self.environment)) is None:
                is_fairseqs = step.words[0].startswith("fairseq-") and not find_spec("fairseq")
                advice = "; it needs fairseq: run bash scripts/setup.sh in a clone" if is_fairseqs else ""
                raise InputError(f"GRID: {step.words[0]}: no such command{advice}")
        is_file = os.path.isfile(self.folder) and not self.folder.is_symlink()
        if self.state[0] == "damaged" and not is_file:
            return
        with _naming_the_folder(self.folder):
            written = self._written_commands()
            # Another sweep may be creating the same folder right now. Its first file is a .tmp file.
            found = self.folder.is_dir() and [name for name in os.listdir(self.folder) if not name.endswith(".tmp")]
        if written is not None and written != _encoded(self.commands) and self.mended() is None:
            raise self._other_commands()
        if written is None and (found or is_file):
            raise InputError(f"--out: {self.folder} exists, but is not the folder of a run; choose a different --out")

    def _other_commands(self):
        return InputError(
            f"--out: {self.folder} belongs to a run with different commands (see {self.folder / 'command'});"
            " choose a different --out, or move this folder away"
        )

    def is_of_other_commands(self) -> bool:
        """Return whether the commands in the file ``command`` differ from this run's commands; False if the file cannot be read."""
        with contextlib.suppress(OSError):
            return self._written_commands() not in (None, _encoded(self.commands))
        return False

    def mended(self) -> str | None:
        """Return the state with which the run continues after its commands have changed in the grid file.

        Return None if the commands have not changed, if the change affects anything that was trained, or if the run is running.
        """
        if not self.is_of_other_commands() or self.state[0] == "damaged" or self._fault():
            return None
        if os.path.lexists(self.folder / "lock") and self.is_locked():
            return None
        written = (self._written_commands() or b"").decode("utf-8", "surrogateescape")
        return mended_state(written, self.commands, self.state, self.folder)

    def _mend(self, state):
        """While holding the lock, write the state, then the new commands. In this order, a sweep killed in between can be resumed."""
        lock = self.locked()
        if lock is None:
            raise self._other_commands()
        with lock:
            self.write("state", state)
            self.write("command", self.commands)

    def prepare(self) -> None:
        """Create the folder with its files ``command`` and ``state``. If ``mended`` returns a state, it replaces the existing state.

        Nothing else is written for a finished or damaged run, because the run's folder may be a link.

        Raises:
            InputError: the folder cannot be written.
        """
        if mended := self.mended():
            self._mend(mended)
        if self.state[0] in ("done", "damaged"):
            return
        with _naming_the_folder(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
        self.write("command", self.commands)
        with (
            _naming_the_folder(self.folder),
            contextlib.suppress(FileExistsError),
            open(self.folder / "state", "x") as state,
        ):
            state.write("waiting\n")

    def write(self, name: str, text: str) -> None:
        """Write a file of the folder atomically.

        Raises:
            InputError: the file cannot be written.
        """
        with replacing(self.folder / name, "--out: {path} cannot be written ({why})") as temporary:
            temporary.write_bytes(_encoded(text if text.endswith("\n") else f"{text}\n"))

    def locked(self):
        """Acquire the lock and return its open file; None if another process holds the lock.

        The lock is a plain ``flock``. The command inherits the open file, so the command keeps the lock if the sweep is killed. The library
        ``filelock`` is not used, for two reasons: it has no public file descriptor that a command could inherit, and when it releases a
        lock, it also unlocks inherited copies.

        Raises:
            InputError: the lock cannot be written, or the file system has no locks.
        """
        with _naming_the_folder(self.folder / "lock"):
            file = open(open_own_file(self.folder / "lock", os.O_WRONLY | os.O_APPEND), "a")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return file
        except BlockingIOError:
            file.close()
            return None
        except OSError as error:
            file.close()
            raise InputError(
                f"--out: {self.folder / 'lock'} cannot be locked ({why(error)}); name a folder on a file system with locks, so that no run"
                " is started twice"
            ) from error

    def is_locked(self) -> bool:
        """Return whether a process holds the lock; False if the folder does not exist."""
        if not os.path.isdir(self.folder):
            return False
        lock = self.locked()
        if lock:
            lock.close()
        return lock is None

    @property
    def failed_log(self) -> Path | None:
        """Log of the step that has failed; None if the run has not failed or its state names no step."""
        word, *rest = self.state
        return next((step.log for step in self.steps if word == "failed" and step.name == rest[0]), None)

    @property
    def holder(self) -> tuple[str, int, int] | None:
        """The host, and the process numbers of the sweep and of the command, from the lock file; None if the file cannot be read."""
        with contextlib.suppress(OSError, ValueError):
            host, *processes = read_text(self.folder / "lock", _MOST).split()
            sweep, command = map(whole_number, processes)
            if sweep is not None and command is not None and 0 < sweep < _LARGEST_PROCESS:
                return host, sweep, command
        return None

    @property
    def is_orphaned(self) -> bool:
        """Whether the lock file names a sweep that has ended on this machine. If the run is still locked, its command is orphaned."""
        holder = self.holder
        return holder is not None and holder[0] == socket.gethostname() and not is_alive(holder[1])

    def seems_running(self) -> bool:
        """Return whether the command that the lock file names is alive, or may be alive on another machine. Only reads files."""
        if self.holder is None:
            return False
        host, sweep, command = self.holder
        return host != socket.gethostname() or is_alive(command or sweep)

    def describe(self, is_running: bool | None = None) -> str:
        """Describe the state in words. A run with the state "running" is described as interrupted if no process runs it.

        Args:
            is_running: whether a process runs the run. If None, the lock is tested.
        """
        word, *rest = self.state
        if word == "damaged":
            return f"damaged: {rest[0]}"
        if word == "failed":
            return f"failed: {rest[0]}, exit status {rest[1]}, see {self.failed_log or self.folder}"
        if word == "running":
            is_running = self.is_locked() if is_running is None else is_running
            return f"{'running' if is_running else 'interrupted'}: {rest[0]}"
        return word


class ActiveRun:
    """A run that this process has started; see ``begin``."""

    def __init__(self, run: Run, lock, environment: dict[str, str]):
        self.run, self.lock, self.environment, self.started = run, lock, environment, time.monotonic()
        names = [step.name for step in run.steps]
        # An interrupted or failed run resumes with the step that it had reached.
        self.next = names.index(run.state[1]) if run.state[1:] and run.state[1] in names else 0
        self._start()

    @property
    def minutes(self) -> float:
        return (time.monotonic() - self.started) / 60

    def poll(self) -> bool:
        """Return whether the run has ended. If a step has succeeded, start the next step.

        Raises:
            InputError: the folder cannot be written any more.
        """
        status = self.process.poll() if self.process else _NOT_STARTED
        if status is None:
            return False
        if status < 0:  # killed by a signal: convert to the status that a shell returns
            status = 128 - status
        step = self.run.steps[self.next]
        if status == 0 and self.next + 1 < len(self.run.steps):
            self.next += 1
            self._start()
            return False
        if status == 0:
            self.run.write("state", "done")
        elif status - 128 not in INTERRUPTS:
            self.run.write("state", f"failed {step.name} {status}")
        self.lock.close()
        return True

    def terminate(self) -> None:
        """Send SIGTERM to the commands."""
        self._signal(signal.SIGTERM)

    def end(self) -> None:
        """Wait until the commands have ended, and kill them after a grace period."""
        if self.process:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(_GRACE_SECONDS)
            self._signal(signal.SIGKILL)
            self.process.wait()
        self.lock.close()
        # Child processes of the commands have inherited the lock, and end a moment later.
        end = time.monotonic() + _GRACE_SECONDS
        with contextlib.suppress(InputError):  # the folder cannot be used any more
            while time.monotonic() < end and self.run.is_locked():
                time.sleep(0.01)

    def _start(self):
        step = self.run.steps[self.next]
        self.run.write("state", f"running {step.name}")
        self._name_holder(0)
        # None if the command cannot be started or its log cannot be written. The run then counts as failed.
        self.process = None
        # A resumed training appends to its log. A later step starts again from its beginning, with an empty log.
        with contextlib.suppress(OSError), open(open_own_file(step.log, os.O_WRONLY | os.O_APPEND), "ab") as log:
            if self.next:
                os.ftruncate(log.fileno(), 0)
            try:
                self.process = subprocess.Popen(
                    step.words,
                    env=self._environment(),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                    pass_fds=[self.lock.fileno()],
                )
            except OSError as error:
                log.write(f"{error}\n".encode())
        if self.process:
            self._name_holder(self.process.pid)

    def _environment(self):
        path = {"PATH": _path(self.run.environment)}
        return {**WAITING, **os.environ, **self.environment, **self.run.environment, **path}

    def _name_holder(self, command):
        with contextlib.suppress(OSError):  # on a full disk; the lock still works
            os.ftruncate(self.lock.fileno(), 0)
            os.write(self.lock.fileno(), f"{socket.gethostname()} {os.getpid()} {command}\n".encode())

    def _signal(self, number):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if self.process:
                os.killpg(self.process.pid, number)


def begin(run: Run, retry_failed: bool, environment: dict[str, str]) -> ActiveRun | None:
    """Start a run. Return None if another process runs it, or has finished it in the meantime.

    Raises:
        InputError: the folder cannot be used, or another sweep with a mended grid file has changed the commands.
    """
    lock = run.locked()
    if lock and run.is_of_other_commands():  # another sweep has mended them
        lock.close()
        raise InputError(f"{run.name}: not started, because another sweep has changed the commands of this run")
    if lock and run.is_due(retry_failed):
        return ActiveRun(run, lock, environment)
    if lock:
        lock.close()
    return None


@contextlib.contextmanager
def _naming_the_folder(path):
    """Convert an OSError to a one-line InputError that names ``path``."""
    try:
        yield
    except OSError as error:
        raise InputError(f"--out: {path} cannot be written ({why(error)})") from error


def _shortened(text):
    return repr(text if len(text) <= 20 else f"{text[:20]}...")


def _encoded(text):
    return text.encode("utf-8", "surrogateescape")  # paths in commands may contain bytes that are not UTF-8


def _path(environment):
    """Return the search path for commands.

    The folder of this Python comes first, so that fairseq's commands are found even if the virtual environment is not activated.
    """
    return os.pathsep.join(
        [str(Path(sys.executable).parent), environment.get("PATH", os.environ.get("PATH", os.defpath))]
    )

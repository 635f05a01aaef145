"""One run of a sweep: its commands, and what its folder says of it.

command   the commands, quoted, as a shell would take them
state     waiting; running STEP; done; failed STEP STATUS. A folder that cannot be used counts as damaged; that word is never written
lock      held by whoever runs it, and by the commands themselves, so that not even after a killed sweep a run is started twice;
          names the host, the process of the sweep and that of the command
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
from pathlib import Path

from ...errors import InputError, whole_number
from ...files import fault_of_own_file, open_own_file, read_regular, read_text, replacing, why

# What ends a run without being a fault of its own; it is resumed then.
INTERRUPTS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
# What a shell gives back of a command that it cannot start.
_NOT_STARTED = 127
_GRACE_SECONDS = 10
_STATES = ("waiting", "running", "done", "failed")
_MOST = 1 << 24  # bytes of a command, a state or a lock
_LARGEST_PROCESS = 1 << 22  # Linux has no number above
# Threads that spin while they wait slow each other down several times beside another busy process. A user's own value stays.
WAITING = {"OMP_WAIT_POLICY": "passive"}


@dataclass(frozen=True)
class Step:
    """A command of a run, and the file for all that it says."""

    name: str
    words: tuple[str, ...]
    log: Path


@dataclass(frozen=True)
class Run:
    """A run of a sweep.

    Attributes:
        environment: variables of all its commands, besides those of the sweep.
        steps: its commands, each run once the one before has ended well.
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
        """The words of the state, such as ["failed", "train", "1"]; "?" stands for a missing word.

        The state of a damaged run is ["damaged", REASON]. Such a run is neither due nor over.
        """
        words = []
        try:
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                words = read_text(self.folder / "state", _MOST).split()
            words = words or ["waiting"]
            if words[0] not in _STATES:
                return ["damaged", f"state begins with {_in_short(words[0])}; must be one of {', '.join(_STATES)}"]
            if words[0] != "done" and (fault := self._fault()):
                return ["damaged", fault]
        except OSError as error:
            return ["damaged", f"state {_in_a_sentence(error)}"]
        return words + ["?"] * ({"failed": 3, "running": 2}.get(words[0], 1) - len(words))

    def _fault(self) -> str:
        """Reason not to write in the folder: it, or a file that a sweep writes there, is a link or a FIFO; "" if there is none."""
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
                if name == "command" and self._written_commands() not in (None, _encoded(self.commands)):
                    read_regular(self.folder / name, _MOST).decode()
            except OSError as error:
                return f"{name} {_in_a_sentence(error)}"
            except UnicodeDecodeError:
                return f"{name} is not UTF-8"
        return ""

    def _written_commands(self) -> bytes | None:
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            return read_regular(self.folder / "command", _MOST)
        return None

    def is_due(self, retry_failed: bool) -> bool:
        """Whether the run is to be started: it waits, was interrupted, or has failed and is to be tried again."""
        word = self.state[0]
        return word in ("waiting", "running") or word == "failed" and retry_failed

    def check(self) -> None:
        """Refuses a folder that other commands have written to, and commands that do not exist. A damaged folder stops no other run.

        Raises:
            InputError: one line with the folder or the command.
        """
        for step in self.steps:
            if shutil.which(step.words[0], path=_path(self.environment)) is None:
                raise InputError(f"GRID: {step.words[0]}: no such command")
        is_file = os.path.isfile(self.folder) and not self.folder.is_symlink()
        if self.state[0] == "damaged" and not is_file:
            return
        with _naming_the_folder(self.folder):
            written = self._written_commands()
            # Another sweep may be at the same, which begins with a .tmp.
            found = self.folder.is_dir() and [name for name in os.listdir(self.folder) if not name.endswith(".tmp")]
        if written is not None and written != _encoded(self.commands):
            raise InputError(
                f"--out: {self.folder} is a run of other commands, see {self.folder / 'command'}; take another --out, or move it away"
            )
        if written is None and (found or is_file):
            raise InputError(f"--out: {self.folder} is there and no run of a sweep; take another --out")

    def prepare(self) -> None:
        """Makes the folder unless it is there. Writes nothing for a run that is done or damaged: its folder may be a link.

        Raises:
            InputError: the disk refuses it.
        """
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
        """A file of the folder, which has the old text or the new one, whatever happens.

        Raises:
            InputError: the disk refuses it.
        """
        with replacing(self.folder / name, "--out: {path} cannot be written ({why})") as temporary:
            temporary.write_bytes(_encoded(text if text.endswith("\n") else f"{text}\n"))

    def locked(self):
        """The open lock, or None where somebody else has it.

        Raises:
            InputError: it cannot be written, or the file system has no locks.
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
        """Whether somebody runs it; nobody does whose folder is gone."""
        if not os.path.isdir(self.folder):
            return False
        lock = self.locked()
        if lock:
            lock.close()
        return lock is None

    @property
    def holder(self) -> tuple[str, int, int] | None:
        """Host, process of the sweep and process of the command of whoever runs it, None where the lock does not say."""
        with contextlib.suppress(OSError, ValueError):
            host, *processes = read_text(self.folder / "lock", _MOST).split()
            sweep, command = map(whole_number, processes)
            if sweep is not None and command is not None and 0 < sweep < _LARGEST_PROCESS:
                return host, sweep, command
        return None

    @property
    def is_left_over(self) -> bool:
        """Whether its command goes on here without the sweep that started it."""
        holder = self.holder
        return holder is not None and holder[0] == socket.gethostname() and not _is_alive(holder[1])

    def describe(self) -> str:
        """The state in words; a run that says it is running and whose lock is free was interrupted."""
        word, *rest = self.state
        if word == "damaged":
            return f"damaged: {rest[0]}"
        if word == "failed":
            log = next((step.log for step in self.steps if step.name == rest[0]), self.folder)
            return f"failed: {rest[0]}, exit status {rest[1]}, see {log}"
        if word == "running":
            return f"{'running' if self.is_locked() else 'interrupted'}: {rest[0]}"
        return word


class UnderWay:
    """A run whose commands this process runs; ``begin`` makes one."""

    def __init__(self, run: Run, lock, environment: dict[str, str]):
        self.run, self.lock, self.environment, self.started = run, lock, environment, time.monotonic()
        names = [step.name for step in run.steps]
        # An interrupted or failed run goes on with the step that it had come to.
        self.next = names.index(run.state[1]) if run.state[1:] and run.state[1] in names else 0
        self._start()

    @property
    def minutes(self) -> float:
        return (time.monotonic() - self.started) / 60

    def poll(self) -> bool:
        """Whether the run is over; starts its next step where there is one.

        Raises:
            InputError: its folder cannot be written any more.
        """
        status = self.process.poll() if self.process else _NOT_STARTED
        if status is None:
            return False
        if status < 0:  # killed by a signal; of a command of its own that was, a shell gives back the same
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
        """Asks the commands to end."""
        self._signal(signal.SIGTERM)

    def end(self) -> None:
        """Waits for their end, and kills what is left of them."""
        if self.process:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(_GRACE_SECONDS)
            self._signal(signal.SIGKILL)
            self.process.wait()
        self.lock.close()
        # What the commands have started has the lock too, and dies a moment later.
        end = time.monotonic() + _GRACE_SECONDS
        with contextlib.suppress(InputError):  # the folder cannot be used any more
            while time.monotonic() < end and self.run.is_locked():
                time.sleep(0.01)

    def _start(self):
        step = self.run.steps[self.next]
        self.run.write("state", f"running {step.name}")
        self._name_holder(0)
        self.process = None  # what cannot be started, or whose log cannot be written, has failed: others may go on
        # A training that is resumed goes on with its log, as with everything else.
        with contextlib.suppress(OSError), open(open_own_file(step.log, os.O_WRONLY | os.O_APPEND), "ab") as log:
            if self.next:
                os.ftruncate(log.fileno(), 0)
            try:
                self.process = subprocess.Popen(
                    step.words,
                    env={
                        **WAITING,
                        **os.environ,
                        **self.environment,
                        **self.run.environment,
                        "PATH": _path(self.run.environment),
                    },
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

    def _name_holder(self, command):
        with contextlib.suppress(OSError):  # the lock itself needs no room on the disk
            os.ftruncate(self.lock.fileno(), 0)
            os.write(self.lock.fileno(), f"{socket.gethostname()} {os.getpid()} {command}\n".encode())

    def _signal(self, number):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if self.process:
                os.killpg(self.process.pid, number)


def begin(run: Run, retry_failed: bool, environment: dict[str, str]) -> UnderWay | None:
    """Starts a run, unless somebody else runs it, or has meanwhile."""
    lock = run.locked()
    if lock and run.is_due(retry_failed):
        return UnderWay(run, lock, environment)
    if lock:
        lock.close()
    return None


def _is_alive(process_id):
    try:
        os.kill(process_id, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


@contextlib.contextmanager
def _naming_the_folder(path):
    """An error of the system in its body becomes one line."""
    try:
        yield
    except OSError as error:
        raise InputError(f"--out: {path} cannot be written ({why(error)})") from error


def _in_short(text):
    return repr(text if len(text) <= 20 else f"{text[:20]}...")


def _in_a_sentence(error):
    reason = why(error)
    return reason if reason.startswith("is ") else f"cannot be read ({reason})"


def _encoded(text):
    return text.encode("utf-8", "surrogateescape")  # paths in commands need not be UTF-8


def _path(environment):
    """Where commands are looked for: beside this Python first, so that fairseq's are found without an activated environment."""
    return os.pathsep.join(
        [str(Path(sys.executable).parent), environment.get("PATH", os.environ.get("PATH", os.defpath))]
    )

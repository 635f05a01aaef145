"""Steps of a recipe. Each step creates one folder, which gets its name only when it is complete."""

import fcntl
import hashlib
import json
import shutil
from pathlib import Path

from prepare.console import InputError, say

KEY = ".key"


class Steps:
    """Runner of the steps of a recipe, in order. A finished step is reused until its settings or an earlier step change.

    A folder is written as ``.NAME.part`` and renamed when it is complete. ``NAME/.key`` has a hash of all its inputs. Other
    folders, such as a user's ``NAME.old``, are not touched.

    A run waits for the lock of ``folder`` before it downloads anything. Child processes inherit the lock, so that orphaned
    processes of an interrupted run cannot interfere with the next run.

    Args:
        folder: folder of the lock, in which most steps create their folders.
    """

    def __init__(self, folder):
        folder.mkdir(parents=True, exist_ok=True)
        self.lock = open(folder / ".lock", "w")
        self.lock_number = self.lock.fileno()
        # flock, because the kernel releases the lock when the last process that has it ends, even if the process is killed.
        try:
            fcntl.flock(self.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"waiting for another run that works in {folder}")
            fcntl.flock(self.lock, fcntl.LOCK_EX)
        self.begin()

    def begin(self):
        """Begin a chain of steps that depends on the source files of this package, but not on earlier steps."""
        sources = sorted(Path(__file__).parent.glob("*.py"))
        self.key = hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()

    def make(self, target, settings, build):
        """Create the folder ``target`` by ``build(part)``, or reuse it.

        Args:
            settings: inputs of the step other than earlier steps; JSON.

        Raises:
            InputError: ``target`` exists and was not created by a step, or it cannot be written.
        """
        self.key = hashlib.sha256(json.dumps([self.key, target.name, settings], sort_keys=True).encode()).hexdigest()
        part, old = (target.with_name(f".{target.name}.{state}") for state in ("part", "old"))
        for leftover in (part, old):
            shutil.rmtree(leftover, ignore_errors=True)
        if target.exists():
            if not (target / KEY).is_file():
                raise InputError(f"{target} exists and was not made by this script: move it away")
            if (target / KEY).read_text() == self.key:
                say(f"{target}: kept")
                return
        say(f"{target}: making it")
        try:
            part.mkdir(parents=True)
            build(part)
            (part / KEY).write_text(self.key)
        except OSError as error:
            shutil.rmtree(part, ignore_errors=True)  # frees space if the disk is full
            raise InputError(f"{target} cannot be made ({error.strerror or error}); run again to resume") from error
        if target.exists():
            target.rename(old)
        part.rename(target)
        shutil.rmtree(old, ignore_errors=True)

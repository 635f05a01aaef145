"""Steps that each make one folder, which bears its name only once it is complete."""

import fcntl
import hashlib
import json
import shutil
from pathlib import Path

from prepare.console import InputError, say

KEY = ".key"


class Steps:
    """The steps of a recipe, in order; a step is kept until its settings or an earlier step change.

    A folder is written as ``.NAME.part`` and renamed when complete, with a hash of all that it depends on in ``NAME/.key``.
    Names beside it that a person may have given, as ``NAME.old``, are nothing of ours.
    A run that finds the lock of ``folder`` taken waits, before it downloads anything. Processes inherit the lock, so that
    what an interrupted run left working cannot meddle with the next one.

    Args:
        folder: where the lock is and most steps make their folders.
    """

    def __init__(self, folder):
        folder.mkdir(parents=True, exist_ok=True)
        self.lock = open(folder / ".lock", "w")
        self.lock_number = self.lock.fileno()
        try:
            fcntl.flock(self.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"waiting for another run that works in {folder}")
            fcntl.flock(self.lock, fcntl.LOCK_EX)
        self.begin()

    def begin(self):
        """Begin a chain of steps that do not depend on those made so far, but on this package's own files."""
        sources = sorted(Path(__file__).parent.glob("*.py"))
        self.key = hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()

    def make(self, target, settings, build):
        """Make the folder ``target`` by ``build(part)``, or keep it.

        Args:
            settings: what the content depends on besides earlier steps; JSON.

        Raises:
            InputError: ``target`` is there and was made by something else, or the disk refuses it.
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
            shutil.rmtree(part, ignore_errors=True)  # what it takes up of a full disk
            raise InputError(f"{target} cannot be made ({error.strerror or error}); run again to go on") from error
        if target.exists():
            target.rename(old)
        part.rename(target)
        shutil.rmtree(old, ignore_errors=True)

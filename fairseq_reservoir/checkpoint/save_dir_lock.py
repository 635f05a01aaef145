"""Allow one training at a time in a ``--save-dir``. The file ``training.lock`` in this folder names the process that trains there.

The package filelock is not used. Its version 4 does not delete the lock file at the end. On a file system without locks, version 4 fails if
the system reports an error other than ENOSYS. Version 3, which torch also accepts, empties the lock file before it has the lock, so that
the name of the other process is lost. In both versions, data loaders inherit the lock, and data loaders may outlive a killed training.
"""

import contextlib
import fcntl
import json
import logging
import os
import re
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from fairseq.distributed import utils as distributed_utils

from ..errors import InputError
from ..fairseq_repairs.stopping import forget_earlier_runs
from ..files import is_alive

logger = logging.getLogger(__name__)

NAME = "training.lock"
# Temporary files of a process that was killed while it saved; see ``files.temporary_name``.
_TEMPORARY = re.compile(r"checkpoint.*\.pt\.(\d+)\.tmp")


def train_alone(main: Callable[..., Any], cfg: Any, **kwargs: Any) -> Any:
    """Run fairseq's ``main`` while rank 0 holds the lock of the ``--save-dir``.

    Raises:
        InputError: another training has the lock. The message names its host and process.
    """
    forget_earlier_runs()
    saves = not cfg.checkpoint.no_save and "://" not in cfg.checkpoint.save_dir
    locks = saves and distributed_utils.is_master(cfg.distributed_training)
    with held(cfg.checkpoint.save_dir) if locks else contextlib.nullcontext():
        return main(cfg, **kwargs)


@contextlib.contextmanager
def held(save_dir: str) -> Iterator[None]:
    """Hold the lock of a folder. The folder is created if it does not exist.

    The operating system releases the lock of a process that ends or is killed, so an orphaned lock file is taken over. A lock file of
    another machine is not taken over, because its process may still run. The exception is a lock file of an earlier run of this Slurm job.

    Raises:
        InputError: another process has or may have the lock, or the file cannot be written.
    """
    path = Path(save_dir) / NAME
    try:
        Path(save_dir).mkdir(parents=True, exist_ok=True)
        lock = _take(path, save_dir)
    except OSError as error:
        raise InputError(f"--save-dir: {path} cannot be written ({error.strerror or error})") from error
    try:
        _remove_orphaned_files(Path(save_dir))
        yield
    finally:
        if _is_at(lock, path):
            path.unlink()
        os.close(lock)


def _take(path: Path, save_dir: str) -> int:
    while True:
        lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
        try:
            is_ours = _locked(lock)
            owner = _read(lock)
            if is_ours is None:  # the file system has no locks
                is_here = owner.get("host") == socket.gethostname()
                is_ours = not (is_here and is_alive(owner["process"]))
            if not is_ours:
                raise InputError(
                    f"--save-dir {save_dir}: process {owner.get('process', '?')} on {owner.get('host', '?')} is training there; "
                    "wait until it ends, or give another folder"
                )
            if not _is_gone(owner):
                raise InputError(
                    f"--save-dir {save_dir}: process {owner['process']} on {owner['host']} uses this folder, or was killed. "
                    f"This cannot be checked from {socket.gethostname()}; if the process has ended, delete {path}"
                )
            if not _is_at(lock, path):  # the holder of the lock has just ended and deleted the file
                os.close(lock)
                continue
            if owner:
                logger.info(
                    "process %s on %s has ended, so this training takes over %s",
                    owner["process"],
                    owner["host"],
                    save_dir,
                )
            os.ftruncate(lock, 0)
            os.pwrite(lock, json.dumps(_ourselves()).encode(), 0)
            return lock
        except BaseException:
            os.close(lock)
            raise


def _locked(lock: int) -> bool | None:
    """Try to acquire the lock, and return whether it was acquired; None if the file system has no locks.

    Processes that are forked later do not inherit the lock.
    """
    try:
        fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        return False
    except OSError:
        return None
    return True


def _ourselves() -> dict[str, Any]:
    return {
        "host": socket.gethostname(),
        "process": os.getpid(),
        "boot": _boot(),
        "job": os.environ.get("SLURM_JOB_ID"),
        "restart": os.environ.get("SLURM_RESTART_COUNT"),
    }


def _boot() -> str | None:
    """Return an id of the machine's current boot, which is the same in all containers; None if the system does not provide one."""
    with contextlib.suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return None


def _read(lock: int) -> dict[str, Any]:
    """Return the owner that a lock file names; {} if it names none, for example because a process was killed before writing the name."""
    try:
        owner = json.loads(os.pread(lock, 4096, 0))
    except (ValueError, RecursionError):
        return {}
    is_owner = isinstance(owner, dict) and isinstance(owner.get("host"), str) and type(owner.get("process")) is int
    return owner if is_owner and owner["process"] > 0 else {}


def _is_gone(owner: dict[str, Any]) -> bool:
    """Return whether the owner of an unlocked lock file has certainly ended.

    This is certain if the owner was a process of this machine, or an earlier run of this Slurm job.
    """
    ours = _ourselves()
    here = owner.get("host") == ours["host"] or owner.get("boot") == ours["boot"] is not None
    again = owner.get("job") == ours["job"] is not None and owner.get("restart") != ours["restart"]
    return not owner or here or again


def _is_at(lock: int, path: Path) -> bool:
    """Return whether ``path`` is still the path of the open file."""
    with contextlib.suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(lock), os.lstat(path))
    return False


def _remove_orphaned_files(folder: Path) -> None:
    for path in folder.glob("checkpoint*.tmp"):
        found = _TEMPORARY.fullmatch(path.name)
        if found and not is_alive(int(found[1])):
            with contextlib.suppress(OSError):
                path.unlink()

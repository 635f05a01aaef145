"""Read the environment variables with which torchrun and Slurm describe the processes of a run."""

import os

from ..errors import InputError, whole_number
from .given import Given

TORCHRUN = ("MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "RANK")
# Variables that fairseq converts to numbers -> smallest value.
_SLURM = {
    "SLURM_NNODES": 1,
    "SLURM_NTASKS": 1,
    "SLURM_NTASKS_PER_NODE": 1,
    "SLURM_NODEID": 0,
    "SLURM_PROCID": 0,
    "SLURM_LOCALID": 0,
}
_LARGEST_PORT = 2**16 - 1


def number(name: str, least: int = 0, most: int | None = None) -> int:
    """Return the whole number in an environment variable. The variable must be set.

    Raises:
        InputError: the value is not a whole number from ``least`` to ``most``.
    """
    text = os.environ[name]
    found = whole_number(text.strip())
    if found is None or found < least or (most is not None and found > most):
        limits = f"of at least {least}" if most is None else f"from {least} to {most}"
        raise InputError(
            f"{name} {text!r}: this environment variable must be a whole number {limits}; correct or unset it"
        )
    return found


def torchrun() -> tuple[int, int] | None:
    """Return world size and rank from torchrun's variables. Return None if a variable is missing, because fairseq then reads none of them.

    Raises:
        InputError: a variable has an invalid value.
    """
    if not all(name in os.environ for name in TORCHRUN):
        return None
    check_meeting_point()
    world_size = number("WORLD_SIZE", 1)
    return world_size, number("RANK", 0, world_size - 1)


def local_rank(flags) -> int:
    """Return the local rank of this process from the variables of torchrun or Slurm; 0 if neither has started the process.

    Args:
        flags: fairseq's ``DistributedTrainingConfig`` or the flags of a command, before fairseq completes them.

    Raises:
        InputError: the variable is not a whole number.
    """
    if torchrun():
        return number("LOCAL_RANK") if "LOCAL_RANK" in os.environ else 0
    # With a world size of 1, the tasks of srun are separate runs.
    if Given(flags).distributed_world_size in (None, 1) or not started_by_slurm() or "SLURM_LOCALID" not in os.environ:
        return 0
    return number("SLURM_LOCALID")


def started_by_slurm() -> bool:
    """Whether fairseq reads the ranks of a run from Slurm's variables."""
    return "SLURM_STEP_NODELIST" in os.environ or "SLURM_JOB_NODELIST" in os.environ


def check_meeting_point() -> None:
    """Refuse a MASTER_ADDR or MASTER_PORT at which the processes cannot connect.

    Raises:
        InputError: a variable has an invalid value.
    """
    if not os.environ["MASTER_ADDR"].strip():
        raise InputError("MASTER_ADDR '': this environment variable must name the host of rank 0; set or unset it")
    number("MASTER_PORT", 1, _LARGEST_PORT)


def check_for_fairseq(flags) -> None:
    """Check the variables from which fairseq reads the ranks of a run.

    Args:
        flags: fairseq's ``DistributedTrainingConfig``.

    Raises:
        InputError: a variable has an invalid value.
    """
    if flags.distributed_init_method == "env://" and {"MASTER_ADDR", "MASTER_PORT"} <= set(os.environ):
        check_meeting_point()
    if flags.distributed_init_method is not None or flags.distributed_world_size == 1 or torchrun():
        return
    if started_by_slurm():
        for name in _SLURM.keys() & os.environ.keys():
            number(name, _SLURM[name])
    for name in {"SLURM_JOB_ID", "SLURM_ARRAY_TASK_ID"} & os.environ.keys():  # fairseq computes a port from them
        number(name)

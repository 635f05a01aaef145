"""Runs as jobs of Slurm, by submitit. A job does what ``local.perform`` does, so its folder looks the same as elsewhere."""

import shutil
from pathlib import Path
from time import monotonic, sleep

from ..errors import InputError
from .local import Elsewhere, interrupts, perform
from .run import Run

_POLL_SECONDS = 1


class Job:
    """The work of one job. One that reaches its time limit or gives way to another is queued again, and goes on from there."""

    def __init__(self, run: Run, retry_failed: bool):
        self.run, self.retry_failed = run, retry_failed

    def __call__(self):
        perform(self.run, self.retry_failed)

    def checkpoint(self):
        from submitit.helpers import DelayedSubmission

        # What has failed in this job has not been resumed by it.
        return DelayedSubmission(Job(self.run, False))


def executor(
    folder: str, time: int, gpus: int, cpus: int, partition=None, jobs: int | None = None, cluster: str = "slurm"
):
    """What submits jobs.

    Args:
        folder: of submitit's own files.
        time, gpus, cpus: of every job, its limit in minutes.
        jobs: how many may run at a time.
        cluster: of submitit; ``local`` for processes on this machine.

    Raises:
        InputError: submitit is not installed, or there is no Slurm here.
    """
    try:
        import submitit
    except ImportError:
        raise InputError("--slurm: needs submitit; pip install submitit") from None
    if cluster == "slurm" and not shutil.which("sbatch"):
        raise InputError("--slurm: sbatch is not found; start the sweep where jobs are submitted")
    found = submitit.AutoExecutor(folder=Path(folder) / "slurm", cluster=cluster)
    found.update_parameters(timeout_min=time, gpus_per_node=gpus, cpus_per_task=cpus, name="sweep")
    if partition:
        found.update_parameters(slurm_partition=partition)
    if jobs:
        found.update_parameters(slurm_array_parallelism=jobs)
    return found


def run_all(runs: list[Run], executor, retry_failed: bool, say, following=list) -> bool:
    """Submits what is due and waits for it; returns False where an interrupt ended that, and cancelled the jobs.

    What somebody else has begun is waited for, and submitted if it is then not over. ``say`` and ``following`` as in ``local.run_all``.
    """
    elsewhere = Elsewhere()
    due = elsewhere.without_begun([run for run in runs if run.is_due(retry_failed)])
    left, started = [], monotonic()

    def submit(runs):
        return [(run, executor.submit(Job(run, retry_failed))) for run in runs if run.is_due(retry_failed)]

    def over(run, minutes):
        say(run, minutes)
        left.extend(submit(following()))

    if due:
        with executor.batch():
            left += submit(due)
    with interrupts() as interrupted:
        while (left or elsewhere.runs) and not interrupted:
            sleep(_POLL_SECONDS)
            left += submit(elsewhere.left(retry_failed, over))
            for run, job in [pair for pair in left if pair[1].done()]:
                left.remove((run, job))
                if run.is_locked():  # its job found somebody else at it
                    elsewhere.add(run)
                else:
                    over(run, (monotonic() - started) / 60)
        for _, job in left:
            job.cancel()
    return not interrupted

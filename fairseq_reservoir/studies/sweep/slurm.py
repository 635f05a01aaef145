"""Runs as jobs of Slurm, by submitit. A job does what ``local.perform`` does, so its folder looks the same as elsewhere."""

import math
import shutil
from pathlib import Path
from time import monotonic, sleep

from ...errors import InputError
from .local import Queue, interrupts, perform
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


def executor(folder: str, time: int, gpus: int, cpus: int, partition=None, cluster: str = "slurm"):
    """What submits jobs.

    Args:
        folder: of submitit's own files.
        time, gpus, cpus: of every job, its limit in minutes.
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
    own = Path(folder) / "slurm"
    if own.is_symlink():
        raise InputError(f"--out: {own} is a link, and jobs are not kept behind links; move it away")
    found = submitit.AutoExecutor(folder=own, cluster=cluster)
    found.update_parameters(timeout_min=time, gpus_per_node=gpus, cpus_per_task=cpus, name="sweep")
    if partition:
        found.update_parameters(slurm_partition=partition)
    return found


def run_all(runs: list[Run], executor, jobs: int | None, retry_failed: bool, say, following=list) -> bool:
    """Submits what is due, ``jobs`` at a time or all, and waits for it; False where an interrupt ended that, and cancelled the jobs.

    What somebody else has begun is waited for, and submitted if it is then not over. ``say`` and ``following`` as in ``local.run_all``.
    """
    queue = Queue(runs, retry_failed, say, following)
    submitted: list = []  # run, job, when
    with interrupts() as interrupted:
        try:
            while not interrupted and (submitted or queue.has_more()):
                while queue.waiting and len(submitted) < (jobs or math.inf) and not interrupted:
                    run = queue.waiting.pop(0)
                    submitted.append((run, executor.submit(Job(run, retry_failed)), monotonic()))
                sleep(_POLL_SECONDS)
                queue.take_back()
                for each in [each for each in submitted if each[1].done()]:
                    submitted.remove(each)
                    run, _, since = each
                    if run.is_locked():  # its job found somebody else at it
                        queue.elsewhere.add(run)
                    else:
                        queue.over(run, (monotonic() - since) / 60)
        finally:
            for _, job, _ in submitted:
                job.cancel()
    return not interrupted

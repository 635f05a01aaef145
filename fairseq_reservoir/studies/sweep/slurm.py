"""Run a sweep as Slurm jobs, submitted with submitit.

A job calls ``local.perform``, so that the run's folder contains the same files as after a local run.
"""

import math
import shutil
from pathlib import Path
from time import monotonic, sleep

from ...errors import InputError
from .local import NextRuns, OnEnd, Queue, Watcher, interrupts, perform
from .run import Run

_POLL_SECONDS = 1


class Job:
    """Callable that Slurm executes as a job. A job that reaches its time limit or is preempted is queued again and then resumes the run."""

    def __init__(self, run: Run, retry_failed: bool):
        self.run, self.retry_failed = run, retry_failed

    def __call__(self):
        perform(self.run, self.retry_failed)

    def checkpoint(self):
        """Return the job that submitit queues in place of this one. If a step has failed in this job, the new job does not retry it."""
        from submitit.helpers import DelayedSubmission

        return DelayedSubmission(Job(self.run, False))


def executor(folder: str, time: int, gpus: int, cpus: int, partition=None, cluster: str = "slurm"):
    """Create submitit's executor, which submits the jobs.

    Args:
        folder: folder of the sweep.
        time: time limit of each job in minutes.
        gpus: number of GPUs of each job.
        cpus: number of cores of each job.
        partition: name of the Slurm partition.
        cluster: submitit's name of the cluster: ``slurm``, or ``local`` for processes on this machine.

    Raises:
        InputError: submitit is not installed, or this machine cannot submit to Slurm.
    """
    try:
        import submitit
    except ImportError:
        raise InputError("--slurm: needs submitit; pip install submitit") from None
    if cluster == "slurm" and not shutil.which("sbatch"):
        raise InputError("--slurm: sbatch is not found; start the sweep on a machine that can submit jobs")
    own = Path(folder) / "slurm"
    if own.is_symlink():
        raise InputError(
            f"--out: {own} is a symbolic link; job files are not written through links. Remove or rename it"
        )
    found = submitit.AutoExecutor(folder=own, cluster=cluster)
    found.update_parameters(timeout_min=time, gpus_per_node=gpus, cpus_per_task=cpus, name="sweep")
    if partition:
        found.update_parameters(slurm_partition=partition)
    return found


def run_all(
    runs: list[Run],
    executor,
    jobs: int | None,
    retry_failed: bool,
    on_end: OnEnd,
    next_runs: NextRuns,
    watcher: Watcher,
) -> bool:
    """Submit all due runs and wait for them. Return True when all have ended. After Ctrl-C, cancel the jobs and return False.

    If another sweep has started a run, this sweep waits until the run stops. If the run is then unfinished, this sweep submits it.

    Args:
        runs: the runs.
        executor: submitit's executor.
        jobs: maximum number of jobs that are submitted at the same time. If None, all runs are submitted at once.
        retry_failed, on_end, next_runs, watcher: see ``local.run_all``.
    """
    queue = Queue(runs, retry_failed, on_end, next_runs, watcher)
    submitted: list = []  # run, job, time of submission
    with interrupts() as interrupted:
        try:
            while not interrupted and (submitted or queue.has_more()):
                while queue.waiting and len(submitted) < (jobs or math.inf) and not interrupted:
                    run = queue.waiting.pop(0)
                    is_resumed = run.state[0] == "running"
                    submitted.append((run, executor.submit(Job(run, retry_failed)), monotonic()))
                    watcher.follow(run, is_resumed)
                sleep(_POLL_SECONDS)
                watcher.look()
                queue.take_back()
                for each in [each for each in submitted if each[1].done()]:
                    submitted.remove(each)
                    run, _, since = each
                    if run.is_locked():  # another sweep runs it
                        queue.foreign.add(run)
                    else:
                        queue.end(run, (monotonic() - since) / 60)
        finally:
            for _, job, _ in submitted:
                job.cancel()
    return not interrupted

"""Runs as jobs. submitit's local executor takes the place of Slurm."""

import os
import signal
import threading
from pathlib import Path
from unittest.mock import Mock

import pytest

pytest.importorskip("submitit")

from fairseq_reservoir.studies.sweep import slurm  # noqa: E402
from fairseq_reservoir.studies.sweep.grid import read_grid  # noqa: E402

JOBS = (
    "command: sh -c 'echo begun; test $0 != asleep || test -f {out}/begun || { touch {out}/begun; sleep 60; }; exit $1'\n"
    "arms: {good: awake 0, bad: awake 3, late: asleep 0}\n"
)


@pytest.mark.slow
def test_jobs_do_the_runs_and_a_preempted_one_resumes(sweep):
    """One of three jobs fails. Another is preempted by the signal that Slurm sends, and is queued again."""
    sweep.write(JOBS)
    runs, over = read_grid(str(sweep.grid), str(sweep.out))[0], []
    *first, late = runs
    for run in runs:
        run.prepare()
    executor = slurm.executor(str(sweep.out), time=30, gpus=0, cpus=1, cluster="local")
    submit, jobs, at_a_time = executor.submit, [], []

    def submit_and_count(job):
        at_a_time.append(1 + sum(not each.done() for each in jobs))
        jobs.append(submit(job))
        return jobs[-1]

    executor.submit = submit_and_count

    def preempt():
        sweep.wait_for(lambda: (sweep.out / "late" / "begun").exists(), seconds=120)
        controller = jobs[2].job_id
        (job,) = Path(f"/proc/{controller}/task/{controller}/children").read_text().split()
        os.kill(int(job), signal.SIGUSR2)

    threading.Thread(target=preempt, daemon=True).start()
    # The first run that ends adds `late`. Two jobs run at a time.
    follow = {1: [late]}
    end, next_runs = lambda run, minutes: over.append(run.name), lambda: follow.pop(len(over), [])
    assert slurm.run_all(first, executor, 2, False, end, next_runs, Mock())
    assert max(at_a_time) == 2
    assert over[2] == "late" and sweep.states() == {"bad": "failed sh 3", "good": "done", "late": "done"}
    assert [sweep.output(run) for run in ("good", "bad", "late")] == [["begun"], ["begun"], ["begun", "begun"]]
    # Only the failed run is due, and only with retry_failed.
    assert slurm.run_all(runs, executor, None, False, print, list, Mock()) and len(over) == 3


def test_parameters_for_slurm(tmp_path, monkeypatch):
    monkeypatch.setattr(slurm.shutil, "which", lambda name: f"/usr/bin/{name}")
    parameters = slurm.executor(str(tmp_path), time=90, gpus=2, cpus=8, partition="short")._executor.parameters
    expected = {"time": 90, "gpus_per_node": 2, "cpus_per_task": 8, "partition": "short"}
    assert {name: parameters[name] for name in expected} == expected

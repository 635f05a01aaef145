"""Real trainings in a sweep: stop, resume, translate, and read by the report."""

import os
import re
import signal

import pytest

from fairseq_reservoir.studies.report.runs import find_runs
from tests.support.commands import TINY, USER_DIR


@pytest.mark.slow
def test_a_stopped_sweep_resumes(sweep, toy_data):
    flags = " ".join(TINY).replace("--log-format none", "--log-format json --log-interval 10").replace("--seed 3", "")
    sweep.write(
        f"command: fairseq-train {toy_data} --user-dir {USER_DIR} {flags} --max-update 90 --save-interval-updates 20\n"
        "axes:\n"
        "  reservoir-encoder: [LT, LQ]\n"
        "  seed: [1, 2]\n"
        "exclude: [{reservoir-encoder: LQ, seed: 2}]\n"
        f"then: ['fairseq-generate {toy_data} --user-dir {USER_DIR} --cpu --path {{out}}/checkpoint_best.pt --max-len-b 9']\n"
    )
    process = sweep.start("--jobs", "2")
    sweep.wait_for((sweep.out / "LT-1" / "checkpoint_last.pt").exists, 120)
    os.kill(process.pid, signal.SIGINT)
    process.join(30)
    assert process.exitcode == 130 and sweep.states()["LT-1"].startswith("running train")
    assert sweep("--jobs", "2") == 1
    # There is no layer Q. fairseq-train exits with 2 for wrong flags.
    assert sweep.states() == {"LT-1": "done", "LT-2": "done", "LQ-1": "failed train 2"}
    log = (sweep.out / "LT-1" / "train.log").read_text()
    assert re.search(r"Loaded checkpoint .*LT-1/checkpoint_last.pt \(epoch \d+ @ \d+ updates\)", log)
    assert "unknown letter 'Q'" in (sweep.out / "LQ-1" / "train.log").read_text()
    runs = {run.name: run for run in find_runs([sweep.out])}
    assert {
        name: (run.seed, run.stem, run.updates, run.state) for name, run in runs.items() if name.startswith("LT")
    } == {
        "LT-1": (1, "LT", 90, "finished"),
        "LT-2": (2, "LT", 90, "finished"),
    }
    assert (sweep.out / "LT-2" / "generate.log").read_text().count("\nD-") == 8

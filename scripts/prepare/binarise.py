"""Run fairseq-preprocess with its output in a log file."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from prepare.console import InputError


def binarise(folder, log, steps, *flags):
    """Run fairseq-preprocess with ``flags`` into ``folder``, with its output in the file ``log``.

    Args:
        steps: the recipe's ``Steps``, whose lock the command inherits.
    """
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    program = shutil.which("fairseq-preprocess", path=path)
    if program is None:
        raise InputError("fairseq-preprocess is not found: bash scripts/setup.sh first")
    command = [program, "--destdir", str(folder), *map(str, flags)]
    with open(log, "w") as output:
        status = subprocess.run(
            command, stdout=output, stderr=subprocess.STDOUT, pass_fds=[steps.lock_number]
        ).returncode
    if status != 0:
        lines = log.read_text(errors="replace").strip().splitlines()
        raise InputError(f"fairseq-preprocess failed: {lines[-1] if lines else f'status {status}'} (all of it: {log})")
    # fairseq's own log has the time in it, so that the folder would differ in each run.
    (folder / "preprocess.log").unlink(missing_ok=True)

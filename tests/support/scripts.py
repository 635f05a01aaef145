"""Run Python scripts in this process, which has already imported torch and fairseq. Importing takes longer than most scripts."""

import io
import runpy
import subprocess
import sys
import traceback
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from unittest.mock import patch


def run_script(path, *words) -> subprocess.CompletedProcess:
    """Equivalent of ``subprocess.run([sys.executable, path, *words], capture_output=True, text=True)``."""
    out, err, status, before = io.StringIO(), io.StringIO(), 0, set(sys.modules)
    command, folders = [str(path), *map(str, words)], [str(folder) for folder in Path(path).parents]
    with (
        redirect_stdout(out),
        redirect_stderr(err),
        patch.object(sys, "argv", command),
        patch.object(sys, "path", [folders[0], *sys.path]),
    ):
        try:
            runpy.run_path(command[0], run_name="__main__")
        except SystemExit as leaving:
            status = leaving.code or 0
            if isinstance(status, str):
                print(status, file=err)
                status = 1
        except Exception:
            traceback.print_exc()
            status = 1
    # Modules in the script's folder and above; the next script must import its own.
    for name in set(sys.modules) - before:
        if "." not in name and str(Path(getattr(sys.modules[name], "__file__", None) or "").parent) in folders[:2]:
            del sys.modules[name]
    return subprocess.CompletedProcess(command, status, out.getvalue(), err.getvalue())

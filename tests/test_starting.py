"""Importing the package only changes fairseq. An editable installation is found next to fairseq."""

import logging
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import torch

import fairseq_reservoir
from tests.support.warm_start import be_code, run_command, run_function

ROOT = Path(__file__).parents[1]
IMPORTED = """
import logging, sys
class Shell:
    def show(self, *error):
        pass
class Words(list):
    def __getitem__(self, place):
        assert "fairseq_reservoir" not in sys._getframe(1).f_code.co_filename, "sys.argv is read"
        return super().__getitem__(place)
def levels():
    named = logging.root.manager.loggerDict.items()
    return {name: logger.level for name, logger in named if isinstance(logger, logging.Logger) and logger.level}
hook = sys.excepthook = Shell().show
sys.argv, sys.orig_argv = Words(sys.argv), Words(sys.orig_argv)
before = levels(), logging.root.level, logging.root.handlers[:], logging.root.manager.disable
import fairseq_reservoir
assert before == (levels(), logging.root.level, logging.root.handlers, logging.root.manager.disable)
assert sys.excepthook == hook
from fairseq.models import ARCH_MODEL_REGISTRY
print("reservoir_transformer" in ARCH_MODEL_REGISTRY)
"""


def test_an_import_changes_nothing_but_fairseq():
    ended = run_function(be_code, IMPORTED)
    assert ended.stdout.splitlines()[-1:] == ["True"], ended.stderr


@pytest.mark.parametrize("handlers", [[], [logging.NullHandler()]])
def test_fairseqs_modules_do_not_configure_logging(handlers, monkeypatch, capsys):
    root = logging.getLogger()
    monkeypatch.setattr(root, "handlers", handlers[:])
    monkeypatch.setattr(root, "level", logging.WARNING)
    with fairseq_reservoir._logging_unchanged():
        logging.basicConfig(level=logging.INFO)  # like fairseq/tasks/text_to_speech.py
        logging.getLogger("fairseq.tasks.text_to_speech").error("Please install tensorboardX")
        logging.getLogger("fairseq").info("a note")
        logging.getLogger("fairseq").warning("a warning")
    assert (root.handlers, root.level) == (handlers, logging.WARNING)
    assert capsys.readouterr().err == ("" if handlers else "a warning\n")
    assert logging.getLogger("fairseq.tasks.text_to_speech").filters == []


def test_an_unknown_repair_is_one_line_of_our_command():
    without = os.environ | {"FAIRSEQ_RESERVOIR_WITHOUT": "batch"}
    ended = run_command("fairseq-reservoir", "size", "reservoir_transformer_tiny", env=without)
    (line,) = ended.stderr.splitlines()
    assert line.startswith("fairseq-reservoir: error: FAIRSEQ_RESERVOIR_WITHOUT batch: no such repair; choose from ")
    assert ended.returncode == 1


@pytest.fixture(scope="module")
def editable(tmp_path_factory):
    """The folder that ``pip install -e`` of a clone fills, and the clone."""
    folder = tmp_path_factory.mktemp("editable")
    clone, site = folder / "fairseq_reservoir", folder / "site"  # git clone gives a folder this name
    for name in ("pyproject.toml", "setup.py", "README.md", "fairseq_reservoir_cli.py"):
        (clone / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, clone / name)
    shutil.copytree(
        ROOT / "fairseq_reservoir", clone / "fairseq_reservoir", ignore=shutil.ignore_patterns("__pycache__")
    )
    build = f"from setuptools import build_meta; print(build_meta.build_editable({str(folder)!r}))"
    made = subprocess.run([sys.executable, "-c", build], cwd=clone, capture_output=True, text=True)
    assert made.returncode == 0, made.stderr
    with zipfile.ZipFile(folder / made.stdout.splitlines()[-1]) as wheel:
        wheel.extractall(site)
    return site, clone


def test_an_editable_installation_lies_beside_fairseq_too(editable):
    """fairseq looks for a folder. Python imports the clone through it, even next to a clone, a folder of the same name."""
    site, clone = editable
    (stand_in,) = (site / "fairseq_reservoir").iterdir()
    record = next(site.glob("*.dist-info/RECORD")).read_text()
    assert f"\nfairseq_reservoir/{stand_in.name},sha256=" in f"\n{record}"
    script = (
        "import fairseq_reservoir, fairseq_reservoir.plan.layer_plan as module, sys;"
        "print(fairseq_reservoir.__file__, module.__file__, fairseq_reservoir is sys.modules['fairseq_reservoir'])"
    )
    command = [sys.executable, "-S", "-c", f"import sys; sys.path.append({str(site)!r}); {script}"]  # -S: without torch
    without = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    ended = subprocess.run(command, cwd=clone.parent, capture_output=True, text=True, env=without)
    package = clone / "fairseq_reservoir"
    assert ended.stdout == f"{package}/__init__.py {package}/plan/layer_plan.py True\n", ended.stderr


def beside_fairseq(folder, package):
    """A folder with fairseq and the plugin, like site-packages."""
    site = Path(next(path for path in sys.path if (Path(path) / "fairseq" / "utils.py").is_file()))
    for name in ("fairseq", "fairseq_cli"):
        shutil.copytree(site / name, folder / name, ignore=shutil.ignore_patterns("__pycache__", "examples"))
    shutil.copytree(package, folder / "fairseq_reservoir", ignore=shutil.ignore_patterns("__pycache__"))
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["wheel", "editable"])
def test_two_processes_find_the_bare_name_from_another_folder(kind, editable, toy_data, tmp_path):
    """The package or its stand-in is next to fairseq. The current folder has no clone."""
    site = beside_fairseq(
        tmp_path / "site",
        editable[0] / "fairseq_reservoir" if kind == "editable" else Path(fairseq_reservoir.__file__).parent,
    )
    (tmp_path / "elsewhere").mkdir()
    flags = (
        "--arch reservoir_transformer_tiny --reservoir-encoder LF --optimizer adam --batch-size 32 --max-update 2 --cpu"
    )
    more = "--num-workers 0 --disable-validation --no-epoch-checkpoints --save-dir run --distributed-world-size 2"
    command = [
        sys.executable,
        "-m",
        "fairseq_cli.train",
        toy_data,
        "--user-dir",
        "fairseq_reservoir",
        *flags.split(),
        *more.split(),
    ]
    variables = os.environ | {"PYTHONPATH": str(site), "OMP_NUM_THREADS": "1"}
    ended = subprocess.run(command, cwd=tmp_path / "elsewhere", capture_output=True, text=True, env=variables)
    assert ended.returncode == 0, ended.stderr
    saved = torch.load(tmp_path / "elsewhere" / "run" / "checkpoint_last.pt", weights_only=False)
    assert "fairseq_reservoir" in saved["extra_state"]  # written by the plugin's trainer

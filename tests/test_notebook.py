"""A notebook that imports the package, trains in its own process and plots, executed as in Jupyter."""

import json
from pathlib import Path

import pytest

nbformat = pytest.importorskip("nbformat")
nbclient = pytest.importorskip("nbclient")
pytest.importorskip("ipykernel")
pytest.importorskip("matplotlib")

ROOT = Path(__file__).parents[1]
IMPORT = """
import logging, sys
before = sys.excepthook, logging.root.level, logging.root.handlers[:], sys.argv[:]
import fairseq_reservoir
assert before == (sys.excepthook, logging.root.level, logging.root.handlers, sys.argv)
"""
TRAIN = """
from fairseq import options
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.distributed.utils import call_main
from fairseq_cli.train import main

def train(*flags):
    words = [DATA, *FLAGS.split(), *flags]
    call_main(convert_namespace_to_omegaconf(options.parse_args_and_arch(options.get_training_parser(), words)), main)

train("--reservoir-encoder", "LF", "--max-update", "6", "--save-dir", "run", "--log-file", "run.log")
"""
FLAGS = (
    "--arch reservoir_transformer_tiny --optimizer adam --lr 0.01 --batch-size 16 --cpu --num-workers 0 --log-format json"
    " --log-interval 1 --disable-validation --no-epoch-checkpoints"
)
PLOT = """
%matplotlib inline
import matplotlib.pyplot as plt
from pathlib import Path
from fairseq_reservoir.studies.report import read_log

records = [record for part in read_log(Path("run.log").read_text()).parts for record in part.records if record.kind == "inner"]
plt.plot([record.updates for record in records], [record.values["loss"] for record in records])
print([record.updates for record in records])
"""
MISTAKE = """
from fairseq_reservoir.errors import InputError

try:
    train("--reservoir-encoder", "LRL", "--save-dir", "other")
except InputError as error:
    print(error)
"""


def test_a_notebook_trains_and_plots(toy_data, tmp_path, monkeypatch):
    for name in ("IPYTHONDIR", "JUPYTER_RUNTIME_DIR", "JUPYTER_CONFIG_DIR"):
        monkeypatch.setenv(name, str(tmp_path / name))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    constants = f"DATA, FLAGS = {str(toy_data)!r}, {FLAGS!r}"
    cells = [nbformat.v4.new_code_cell(text.strip()) for text in (IMPORT, constants, TRAIN, PLOT, MISTAKE)]
    notebook = nbformat.v4.new_notebook(cells=cells)
    nbclient.NotebookClient(
        notebook, timeout=900, kernel_name="python3", resources={"metadata": {"path": tmp_path}}
    ).execute()
    imported, _, trained, plotted, refused = ([*cell.outputs] for cell in notebook.cells)
    printed = "".join(output.get("text", "") for output in trained)
    assert imported == [] and "| INFO | fairseq_cli.train | done training in" in printed
    assert [output["data"]["image/png"][:4] for output in plotted if "data" in output] == ["iVBO"]  # PNG in base64
    assert json.loads(plotted[0]["text"].splitlines()[-1]) == [1, 2, 3, 4, 5, 6]
    assert refused[-1]["text"].splitlines()[-1].startswith("--reservoir-encoder 'LRL': R is not one kind of layer")
    assert (tmp_path / "run" / "checkpoint_last.pt").is_file() and not (tmp_path / "other").exists()

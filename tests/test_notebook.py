"""examples/notebook.ipynb, executed as in Jupyter. The import of the package changes nothing, and a mistake is one line."""

import re
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
# The notebook captures fairseq's log.
LOG = "print(log.stdout)"
UPDATES = "print([r.updates for r in records])"
MISTAKE = """
from fairseq_reservoir.errors import InputError

try:
    train("--arch", "reservoir_transformer_tiny", "--reservoir-encoder", "LRL", "--save-dir", "other")
except InputError as error:
    print(error)
"""


@pytest.mark.parametrize("last", [20, pytest.param(200, marks=pytest.mark.slow)])
def test_the_notebook(tmp_path, monkeypatch, last):
    """By default, with a tenth of its updates, after which the model does not translate."""
    for name in ("IPYTHONDIR", "JUPYTER_RUNTIME_DIR", "JUPYTER_CONFIG_DIR"):
        monkeypatch.setenv(name, str(tmp_path / name))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    notebook = nbformat.read(ROOT / "examples" / "notebook.ipynb", as_version=4)
    assert not any(cell.get("outputs") for cell in notebook.cells)
    for cell in notebook.cells:
        cell.source = re.sub(r"\b200\b", str(last), cell.source)
    first, *more = (nbformat.v4.new_code_cell(text.strip()) for text in (IMPORT, LOG, UPDATES, MISTAKE))
    notebook.cells = [first, *notebook.cells, *more]
    nbclient.NotebookClient(
        notebook, timeout=900, kernel_name="python3", resources={"metadata": {"path": tmp_path}}
    ).execute()
    imported, *shown, log, updates, refused = (cell.outputs for cell in notebook.cells if cell.cell_type == "code")
    assert imported == [] and "| INFO | fairseq_cli.train | done training in" in log[0]["text"]
    assert updates[0]["text"] == f"{[*range(10, last + 1, 10)]}\n"
    assert (
        refused[-1]["text"]
        .splitlines()[-1]
        .startswith("--reservoir-encoder 'LRL': R does not stand for one kind of layer")
    )
    assert (tmp_path / "digits" / "run" / "checkpoint_last.pt").is_file() and not (tmp_path / "other").exists()
    data = [output["data"] for outputs in shown for output in outputs if "data" in output]
    figures = [each["image/png"] for each in data if "image/png" in each]
    assert [figure[:4] for figure in figures] == ["iVBO", "iVBO"]  # PNG in base64
    assert [each["text/html"][:14] for each in data if "text/html" in each] == ["<table><thead>"]
    texts = [each["text/plain"] for each in data]
    assert last < 200 or "['three one four', 'two seven one eight', 'one six one eight zero']" in texts
    assert any(text.startswith("['encoder.layers.0.fc1.scores',") for text in texts)

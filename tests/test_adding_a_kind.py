"""docs/adding-a-kind.md, followed in a copy of the package: four files, and the tests of every kind pass for the new one."""

import importlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from fairseq_reservoir.plan.kinds import all_kinds, letters_where

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "adding-a-kind.md").read_text()
BLOCKS = re.findall(r"^```python\n(.*?)^```", PAGE, flags=re.DOTALL | re.MULTILINE)
followed = {"H", "h"} & set(letters_where()) or "gated feed-forward" in [kind.name for kind in all_kinds()]
pytestmark = pytest.mark.skipif(bool(followed), reason="the page has been followed here: its letter or name is taken")
PARTS = ("fairseq_reservoir", "tests", "scripts", "docs", "README.md", "pytest.ini")


def files(folder):
    return {
        path.relative_to(folder): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def paste(row, table):
    """Append a row to the table of kinds."""
    end = "):\n    register(_kind)"
    assert table.read_text().count(end) == 1
    table.write_text(table.read_text().replace(end, row + end))


@pytest.fixture
def copy(tmp_path):
    """A copy of the repository with the steps of the page done, and its new or changed files."""
    for part in PARTS:
        (shutil.copytree if (ROOT / part).is_dir() else shutil.copy)(ROOT / part, tmp_path / part)
    before = files(tmp_path)
    layer, row, test = BLOCKS
    (tmp_path / "fairseq_reservoir/layers/gated.py").write_text(layer)
    (tmp_path / "tests/layers/test_gated.py").write_text(test)
    paste(row, tmp_path / "fairseq_reservoir/plan/kinds.py")
    run(tmp_path, "scripts/kinds_table.py")
    after = files(tmp_path)
    return tmp_path, {str(name) for name in after if after[name] != before.get(name)}


def run(folder, *words):
    environment = os.environ | {"PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, *words], cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_row_pasted_into_the_table_is_a_kind(tmp_path, monkeypatch):
    """In a copy of ``plan/`` under another name, which imports neither torch nor fairseq."""
    package = tmp_path / "with_the_row"
    shutil.copytree(ROOT / "fairseq_reservoir" / "plan", package / "plan")
    shutil.copy(ROOT / "fairseq_reservoir" / "errors.py", package)
    (package / "__init__.py").touch()
    paste(BLOCKS[1], package / "plan" / "kinds.py")
    monkeypatch.syspath_prepend(tmp_path)
    pasted = importlib.import_module("with_the_row.plan.kinds")
    assert [kind.letter for kind in pasted.all_kinds()] == [*(kind.letter for kind in all_kinds()), "H"]
    assert {"H", "h"} <= set(pasted.letters_where("decoder", own_norm=True))


@pytest.mark.slow
def test_four_files_and_the_tests_of_every_kind(copy):
    folder, changed = copy
    pages = {name for name in changed if name.endswith(".md")}
    assert changed - pages == {
        "fairseq_reservoir/layers/gated.py",
        "fairseq_reservoir/plan/kinds.py",
        "tests/layers/test_gated.py",
    }
    assert len(pages) == 1
    words = re.search(r"^python -m pytest (.*) -k \"(.*)\"$", PAGE, flags=re.MULTILINE)
    out = run(folder, "-m", "pytest", "-q", "-p", "no:cacheprovider", *words[1].split(), "-k", words[2])
    assert int(re.search(r"(\d+) passed", out)[1]) > 60 and "failed" not in out

"""Runs recipes in this process with the real fairseq-preprocess."""

import io
import subprocess
import sys
from contextlib import redirect_stdout
from types import SimpleNamespace

import pytest

from tests.support.miniature import ROOT

sys.path.insert(0, str(ROOT / "scripts"))


@pytest.fixture
def in_process(monkeypatch):
    """Run fairseq-preprocess in this process, which saves seconds of start-up."""
    from fairseq_cli import preprocess
    from prepare import binarise

    def run(command, stdout, **others):
        monkeypatch.setattr(sys, "argv", command)
        preprocess.cli_main()
        return subprocess.CompletedProcess(command, 0)

    monkeypatch.setattr(binarise, "subprocess", SimpleNamespace(run=run, STDOUT=None))


@pytest.fixture
def prepare(tmp_path, monkeypatch, in_process):
    """Return a function that runs a recipe in an empty folder and returns its output."""
    monkeypatch.chdir(tmp_path)

    def run(recipe, *arguments):
        printed = io.StringIO()
        with redirect_stdout(printed):
            recipe.main([*map(str, arguments), "--jobs", "1"])
        return printed.getvalue()

    return run

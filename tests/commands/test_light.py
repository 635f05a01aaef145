"""Commands that build no model start without torch and fairseq, and so does every ``--help``."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from fairseq.models.transformer import TransformerModel

import fairseq_reservoir
from fairseq_reservoir.options.transformer_flags import TRANSFORMER

# Runs the console script in a process in which importing these packages is an error.
BLOCKED = """
import sys
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("torch", "fairseq", "sklearn", "scipy", "omegaconf", "hydra"):
            raise AssertionError(f"{name} is imported")
sys.meta_path.insert(0, Blocked())
import fairseq_reservoir_cli
fairseq_reservoir_cli.main()
"""
COMMANDS = "plan size export translate materialize average dump-embeddings probe report sweep doctor".split()


def run_blocked(*arguments):
    variables = os.environ | {"PYTHONPATH": str(Path(fairseq_reservoir.__file__).parents[1])}
    return subprocess.run([sys.executable, "-c", BLOCKED, *arguments], capture_output=True, text=True, env=variables)


@pytest.mark.parametrize("arguments", [["--help"], *([command, "--help"] for command in COMMANDS)], ids=" ".join)
def test_help(arguments):
    finished = run_blocked(*arguments)
    assert (finished.stderr, finished.returncode) == ("", 0)
    assert finished.stdout.startswith("usage: ")


def test_report(tmp_path):
    """The command refuses an empty folder of runs."""
    finished = run_blocked("report", str(tmp_path), "--out", str(tmp_path / "report"))
    assert finished.returncode == 1 and finished.stderr.startswith("fairseq-reservoir: error: ")


def test_every_command_is_listed_here():
    help_text = run_blocked("--help").stdout
    assert [
        line.split()[0] for line in help_text.splitlines() if line.startswith("    ") and line[4] != " "
    ] == COMMANDS


def test_the_flags_of_fairseqs_transformer_are_the_installed_ones():
    """``--help`` lists them without importing fairseq."""
    import argparse

    parser = argparse.ArgumentParser(add_help=False)
    TransformerModel.add_args(parser)
    assert TRANSFORMER == tuple(
        action.option_strings[0].removeprefix("--").replace("-", "_") for action in parser._actions
    )

"""What ``fairseq-reservoir export`` and the commands that read its file print."""

import os
import re
import subprocess
import sys

import pytest

from fairseq_reservoir import cli
from tests.support import programs


def in_new_process(folder, *command, text=""):
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONWARNINGS"}
    return subprocess.run(command, cwd=folder, env=environment, input=text, capture_output=True, text=True)


def test_one_line_and_nothing_on_standard_error(of_numbers, tmp_path):
    start = [sys.executable, "-m", "fairseq_reservoir_cli"]
    words = ["export", of_numbers.path, "model.safetensors", "--sentencepiece-model", of_numbers.pieces]
    written = in_new_process(tmp_path, *start, *words)
    size = (tmp_path / "model.safetensors").stat().st_size
    assert (written.stdout, written.stderr) == (f"model.safetensors: {size:,} bytes\n", "")
    translate = programs.command_of("fairseq-reservoir", "translate", "model.safetensors", "--cpu")
    translated = in_new_process(tmp_path, *translate, text="seventeen\n")
    assert translated.stdout.count("\n") == 1 and translated.stderr == ""


def test_verbose(of_numbers, tmp_path, capsys):
    cli.main(["export", str(of_numbers.path), str(tmp_path / "a.safetensors"), "--verbose"])
    assert re.search(
        r"a.safetensors: [\d,]+ bytes \([\d,]+ of data, whose entropy is [\d,]+\); the file stores \d+ of \d+ random tensors",
        capsys.readouterr().out,
    )


@pytest.mark.parametrize(
    "command", ["plan", "size", "export", "translate", "materialize", "average", "dump-embeddings", "probe"]
)
def test_help_names_verbose(command, capsys):
    with pytest.raises(SystemExit):
        cli.main([command, "--help"])
    assert "--verbose" in capsys.readouterr().out

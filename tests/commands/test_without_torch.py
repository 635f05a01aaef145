"""`fairseq-reservoir translate` where torch and fairseq cannot be imported, as in an installation without the extra `train`."""

import subprocess
import sys

import pytest

from fairseq_reservoir.checkpoint import load_translator

pytest.importorskip("ctranslate2", reason="ctranslate2 is not installed: pip install ctranslate2")
START = """
import sys
sys.modules["torch"] = sys.modules["fairseq"] = None  # their import fails
sys.argv[0] = "fairseq-reservoir"
import fairseq_reservoir_cli
fairseq_reservoir_cli.main()
"""
TRAIN = "run bash scripts/setup.sh in a clone of the repository\n"


def run(*arguments, text=""):
    command = [sys.executable, "-c", START, *map(str, arguments)]
    return subprocess.run(command, input=text, capture_output=True, text=True)


def test_translations_and_help(with_text):
    lines = ["one hundred and two", "", "seventeen"]
    ended = run("translate", with_text, "--max-len-b", 20, text="\n".join(lines))
    expected = load_translator(with_text).translate(lines, max_len_b=20)
    assert (ended.returncode, ended.stderr, ended.stdout.splitlines()) == (0, "", expected)
    assert "usage: fairseq-reservoir translate" in run("translate", "--help").stdout
    assert "translate text with an export" in run("--help").stdout


@pytest.mark.parametrize("arguments", [["size", "FILE"], ["translate", "FILE", "--engine", "torch"]])
def test_commands_that_need_torch(arguments, with_text):
    ended = run(*(with_text if word == "FILE" else word for word in arguments))
    assert ended.returncode == 1 and ended.stdout == ""
    assert ended.stderr == f"fairseq-reservoir: error: {arguments[0]}: needs torch and fairseq; {TRAIN}"

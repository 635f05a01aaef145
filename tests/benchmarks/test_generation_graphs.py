"""benchmarks/generation_graphs.py: its arguments and its comparison, and a run with a tiny model on the CPU."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import generation_graphs

SCRIPT = Path(generation_graphs.__file__)


def test_arms_differ_in_one_flag():
    given = generation_graphs.read_arguments(["--precision", "fp16", "--device", "cuda"])
    stock, graphs = generation_graphs.arms_of(given, "data", "model.pt")
    assert graphs.words == [*stock.words, "--cuda-graphs"] and "--fp16" in stock.words and "--cpu" not in stock.words


def test_wrong_arguments(capsys):
    with pytest.raises(SystemExit):
        generation_graphs.read_arguments(["--data", "x"])
    assert "--data and --path: give both or none" in capsys.readouterr().err


def test_differences():
    printed = "S-0\ta\nH-0\t-0.5\tx y\nD-0\t-0.5\tx y\nH-1\t-1.25\tz\n"
    theirs = generation_graphs.read(printed)
    assert theirs == {0: ("x y", -0.5), 1: ("z", -1.25)}
    found = generation_graphs.differences(theirs, {0: ("x y", -0.75), 1: ("w", -1.0)})
    assert found == {"sentences": 2, "different": 1, "largest difference of scores": 0.25}


@pytest.mark.slow
def test_a_run(tmp_path):
    command = [sys.executable, SCRIPT, "--tiny", "--at-most", "1000", "--threads", "1", "--output", tmp_path / "times"]
    ended = subprocess.run(command, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    result = json.loads((tmp_path / "times.json").read_text())
    assert [arm["arm"] for arm in result["arms"]] == ["fairseq", "graphs"]
    assert result["surroundings"]["sentences"] == 12 and result["surroundings"]["different"] == 0
    assert "Of 12 sentences, 0 have another translation" in ended.stdout

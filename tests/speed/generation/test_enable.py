"""The flag ``--cuda-graphs`` sets an environment variable, which a user can set too."""

import argparse
import os

import pytest

from fairseq_reservoir.options.command_options import GENERATION_GRAPHS, ON_CPU
from fairseq_reservoir.speed.generation import enable


@pytest.mark.parametrize("before, with_flag, later", [(None, "1", None), ("", "1", None), (ON_CPU, ON_CPU, ON_CPU)])
def test_variable(monkeypatch, before, with_flag, later):
    monkeypatch.setattr(enable, "_set_by_flag", False)
    monkeypatch.setenv(GENERATION_GRAPHS, "")
    if before is None:
        monkeypatch.delenv(GENERATION_GRAPHS)
    else:
        monkeypatch.setenv(GENERATION_GRAPHS, before)
    parser = argparse.ArgumentParser()
    parser.add_argument("--lenpen")
    enable.add_flag(parser)
    found = []
    for words in (["--cuda-graphs"], []):
        enable.read_flag(parser, parser.parse_args(words))
        found.append(os.environ.get(GENERATION_GRAPHS))
    assert found == [with_flag, later]

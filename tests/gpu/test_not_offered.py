"""``torch.compile`` is not offered: the flags are refused. CUDA graphs are ours; fairseq has neither."""

import inspect
from pathlib import Path

import fairseq.trainer
import fairseq_cli
import pytest
from fairseq import options

from tests.support.commands import error_of


@pytest.mark.parametrize("flag", ["--compile", "--torch-compile"])
def test_the_flag_is_unknown(begin, toy_data, tmp_path, flag):
    text, status = error_of(toy_data, flag, "--save-dir", tmp_path / "out", begin=begin)
    assert status == 2 and f"unrecognized arguments: {flag}" in text
    assert not (tmp_path / "out").exists()


def test_no_flag_and_no_line_of_fairseqs_commands_has_them():
    """This test fails if a new fairseq supports them."""
    flags = " ".join(options.get_training_parser().format_help().split())
    sources = [
        inspect.getsource(fairseq.trainer),
        *(p.read_text() for p in Path(fairseq_cli.__file__).parent.glob("*.py")),
    ]
    for word in ("torch.compile", "CUDAGraph", "cuda.graph", "--compile", "cuda-graph"):
        assert not any(word in text for text in (flags, *sources)), word

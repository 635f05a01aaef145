"""Hook of fairseq's ``parse_args_and_arch``, which reads the flags of every command. Its repairs can be switched off by name."""

import os
import sys

import pytest
from fairseq import options

from fairseq_reservoir.errors import InputError
from fairseq_reservoir.fairseq_repairs import repair
from fairseq_reservoir.options.command_options import GENERATION_GRAPHS

SCORE = ["data", "--path", "model.pt", "--distributed-world-size", "2"]


@pytest.fixture(params=[repair.APPLIED, repair.SWITCHED_OFF])
def is_applied(request, monkeypatch):
    monkeypatch.setattr(repair, "_states", dict.fromkeys(repair._states, request.param))
    monkeypatch.setattr(sys, "argv", ["notebook"])  # not a command of fairseq, so that no file is checked
    return request.param == repair.APPLIED


def test_bf16_and_lists_of_layers(is_applied):
    arguments = "data --arch transformer_tiny --bf16 --encoder-layers-to-keep 0,1".split()
    flags = options.parse_args_and_arch(options.get_training_parser(), arguments)
    assert flags.tpu != is_applied
    assert flags.encoder_layers_to_keep == ("0,1" if is_applied else [0, 1])


def test_scoring_a_share_of_the_data(is_applied):
    if is_applied:
        with pytest.raises(InputError, match="^--distributed-world-size 2: this command would score only the first"):
            options.parse_args_and_arch(options.get_generation_parser(), SCORE)
    else:
        assert options.parse_args_and_arch(options.get_generation_parser(), SCORE).distributed_world_size == 2


def test_a_value_that_hydra_would_change(is_applied):
    arguments = ["data", "--arch", "transformer_tiny", "--save-dir", "${HOME}"]
    if is_applied:
        with pytest.raises(InputError, match=r"^--save-dir '\$\{HOME\}': only YAML files can refer"):
            options.parse_args_and_arch(options.get_training_parser(), arguments)
    else:
        assert options.parse_args_and_arch(options.get_training_parser(), arguments).save_dir == "${HOME}"


def test_only_a_training_has_our_flags():
    for parser, is_training in ((options.get_training_parser(), True), (options.get_generation_parser(), False)):
        arguments = ["data", "--arch", "transformer_tiny"] if is_training else ["data", "--path", "model.pt"]
        options.parse_args_and_arch(parser, arguments)
        defined = parser._option_string_actions
        assert ("--threads" in defined) == ("--allow-other-dictionary" in defined) == is_training


def test_cuda_graphs_of_a_command_that_translates(monkeypatch):
    """The flag sets its environment variable, and the next command without the flag removes it."""
    monkeypatch.delenv(GENERATION_GRAPHS, raising=False)
    for parser in (options.get_generation_parser(), options.get_interactive_generation_parser()):
        options.parse_args_and_arch(parser, ["data", "--path", "model.pt", "--cuda-graphs"])
        assert os.environ[GENERATION_GRAPHS] == "1"
        options.parse_args_and_arch(options.get_generation_parser(), SCORE[:3])
        assert GENERATION_GRAPHS not in os.environ
    monkeypatch.setenv(GENERATION_GRAPHS, "cpu")
    options.parse_args_and_arch(options.get_generation_parser(), SCORE[:3])
    assert os.environ[GENERATION_GRAPHS] == "cpu"

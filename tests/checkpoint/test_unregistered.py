"""A checkpoint of an unregistered architecture or task gives one line with its name."""

import re

import pytest
import torch
from fairseq import checkpoint_utils

from fairseq_reservoir import cli
from fairseq_reservoir.errors import InputError
from tests.support.commands import train

ADVICE = "give the --user-dir that registers it (in Python, import that package)"
LINE = f"the architecture mine_tiny is not registered; {ADVICE}"


@pytest.fixture(scope="module")
def of_another(toy_data, tmp_path_factory):
    """A checkpoint of another plugin."""
    folder = tmp_path_factory.mktemp("another")
    layers = ["--encoder-layers", 1, "--decoder-layers", 1, "--no-epoch-checkpoints"]
    train(toy_data, "--arch", "transformer", *layers, "--max-update", 1, "--disable-validation", "--save-dir", folder)
    path = folder / "checkpoint_last.pt"
    state = torch.load(path)
    state["cfg"]["model"]._name = state["cfg"]["model"].arch = "mine_tiny"
    torch.save(state, path)
    return path


@pytest.mark.parametrize("command", ["size", "export", "materialize"])
def test_our_commands(of_another, tmp_path, command):
    out = [] if command == "size" else [str(tmp_path / ("model.safetensors" if command == "export" else "model.pt"))]
    with pytest.raises(SystemExit) as leaving:
        cli.main([command, str(of_another), *out])
    assert str(leaving.value) == f"fairseq-reservoir: error: {LINE}"
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("task", [{"_name": "mine"}, {"_name": None, "task": "mine"}])
def test_a_task(of_l_and_t, tmp_path, task):
    state = torch.load(of_l_and_t.path)
    state["cfg"]["task"] = {"data": state["cfg"]["task"]["data"]} | task
    torch.save(state, tmp_path / "of_mine.pt")
    with pytest.raises(SystemExit) as leaving:
        cli.main(["export", str(tmp_path / "of_mine.pt"), str(tmp_path / "model.safetensors")])
    line = f"the task mine is not registered; {ADVICE}"
    assert str(leaving.value) == f"fairseq-reservoir: error: {line}"
    with pytest.raises(InputError, match=re.escape(line)):  # as from Python, and in fairseq-eval-lm
        checkpoint_utils.load_model_ensemble_and_task([str(tmp_path / "of_mine.pt")])


def test_translating(of_another, toy_data, run_fairseq):
    with pytest.raises(InputError, match=re.escape(LINE)):
        run_fairseq("generate", toy_data, "--path", of_another, "--cpu")


def test_finetuning_from_it_is_allowed(of_another, toy_data):
    """Only the tensors of such a checkpoint are read."""
    start = ["--finetune-from-model", of_another, "--encoder-layers", 1, "--decoder-layers", 1]
    run = train(toy_data, "--arch", "transformer", *start, "--max-update", 1, "--no-save", "--disable-validation")
    assert len(run.losses) == 1

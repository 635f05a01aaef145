"""bf16 on a CPU: the loss falls, frozen tensors do not change, the run resumes, and its checkpoint translates."""

import sys
from importlib import import_module

import pytest
import torch

from tests.support.commands import USER_DIR, load, train

PLAN = "--reservoir-encoder LTFL --reservoir-decoder LT --batch-size 16 --disable-validation --no-epoch-checkpoints".split()
OPTIMIZERS = {
    "adam": ["--optimizer", "adam"],
    "freeze_skip": ["--optimizer", "freeze_skip", "--freeze-schedule", "10:encoder.layers.0"],
}


@pytest.mark.parametrize(
    "number_format, optimizer",
    [
        ("--bf16", "freeze_skip"),
        ("--memory-efficient-bf16", "adam"),
        pytest.param("--bf16", "adam", marks=pytest.mark.slow),
        pytest.param("--memory-efficient-bf16", "freeze_skip", marks=pytest.mark.slow),
    ],
)
def test_training_resuming_and_translating(toy_data, tmp_path, monkeypatch, capsys, number_format, optimizer):
    flags = [*PLAN, number_format, *OPTIMIZERS[optimizer], "--lr", 0.003, "--save-dir", tmp_path]
    run = train(toy_data, *flags, "--max-update", 20)
    assert sum(run.losses[10:]) < 0.98 * sum(run.losses[:10])  # an epoch has 10 updates
    assert {
        tensor.dtype for name, tensor in run.weights.items() if tensor.is_floating_point() and "version" not in name
    } == {torch.bfloat16}
    for entry in run.model.slot_table.entries:
        if not entry.trained:
            assert run.weights[entry.name].equal(run.initial[entry.name].bfloat16()), entry.name
    resumed = train(toy_data, *flags, "--max-update", 22)
    assert len(resumed.losses) == 2 and load(tmp_path)["optimizer_history"][-1]["num_updates"] == 22

    last = str(tmp_path / "checkpoint_last.pt")
    command = [
        "fairseq-generate",
        str(toy_data),
        "--path",
        last,
        "--user-dir",
        USER_DIR,
        "--cpu",
        "--batch-size",
        "4",
        "--beam",
        "2",
        "--max-len-b",
        "10",
    ]
    capsys.readouterr()
    monkeypatch.setattr(sys, "argv", command)
    import_module("fairseq_cli.generate").cli_main()
    assert sum(line.startswith("H-") for line in capsys.readouterr().out.splitlines()) == 8


@pytest.mark.parametrize("optimizer", [pytest.param("adam", marks=pytest.mark.slow), "freeze_skip"])  # which wraps adam
@pytest.mark.parametrize(
    "number_format",
    [
        ["--bf16"],
        pytest.param(["--fast", "--bf16"], marks=pytest.mark.slow),
        pytest.param(["--fp16", "--fp16-no-flatten-grads"], marks=pytest.mark.slow),
        pytest.param(["--memory-efficient-bf16"], marks=pytest.mark.slow),
    ],
    ids=" ".join,
)
def test_a_resumed_run_is_the_whole_one(toy_data, tmp_path, number_format, optimizer):
    """fairseq rounds weights to bf16 at each resume. Steps of 1e-5 are mostly lost in this rounding."""
    flags = [*PLAN, *number_format, *OPTIMIZERS[optimizer], "--lr", 1e-5]
    whole = train(toy_data, *flags, "--max-update", 14, "--save-dir", tmp_path / "whole")
    for updates in (5, 11, 14):
        resumed = train(toy_data, *flags, "--max-update", updates, "--save-dir", tmp_path / "resumed")
    assert resumed.losses == whole.losses[11:]
    if "--memory-efficient-bf16" not in number_format:
        weights = [run.trainer.optimizer.fp32_params for run in (whole, resumed)]
        assert all(ours.equal(theirs) for ours, theirs in zip(*weights, strict=True))
        assert any(not weight.equal(weight.bfloat16().float()) for weight in weights[0])
    assert all(tensor.equal(whole.weights[name]) for name, tensor in resumed.weights.items())


def test_an_edited_model_is_not_undone(toy_data, tmp_path):
    """If a weight in the file differs from the optimizer's fp32 copy, the weight in the file is used."""
    flags = [*PLAN, "--bf16", "--save-dir", tmp_path]
    train(toy_data, *flags, "--max-update", 2)
    file, name = tmp_path / "checkpoint_last.pt", "decoder.layers.0.fc1.weight"
    checkpoint = torch.load(file, weights_only=False)
    checkpoint["model"][name].zero_()
    torch.save(checkpoint, file)
    resumed = train(toy_data, *flags, "--max-update", 3, "--lr", 1e-3)
    assert 0 < resumed.weights[name].abs().max() < 2e-3

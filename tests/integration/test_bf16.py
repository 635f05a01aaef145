"""bf16 from end to end on a CPU: the loss falls, frozen tensors stay, the run resumes, and its checkpoint translates."""

import sys
from importlib import import_module

import pytest
import torch

from tests.support.commands import USER_DIR, load, train

PLAN = "--reservoir-encoder LTFL --reservoir-decoder LT --disable-validation --no-epoch-checkpoints".split()
FORMATS = ["--bf16", "--memory-efficient-bf16"]
OPTIMIZERS = {
    "adam": ["--optimizer", "adam"],
    "freeze_skip": ["--optimizer", "freeze_skip", "--freeze-schedule", "40:encoder.layers.0"],
}


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("number_format", FORMATS)
def test_training_resuming_and_translating(toy_data, tmp_path, monkeypatch, capsys, number_format, optimizer):
    flags = [*PLAN, number_format, *OPTIMIZERS[optimizer], "--lr", 0.003, "--save-dir", tmp_path]
    run = train(toy_data, *flags, "--max-update", 80)
    assert sum(run.losses[40:]) < 0.98 * sum(run.losses[:40])  # an epoch is 40 updates
    assert {
        tensor.dtype for name, tensor in run.weights.items() if tensor.is_floating_point() and "version" not in name
    } == {torch.bfloat16}
    for entry in run.model.slot_table.entries:
        if not entry.trained:
            assert run.weights[entry.name].equal(run.initial[entry.name].bfloat16()), entry.name
    resumed = train(toy_data, *flags, "--max-update", 82)
    assert len(resumed.losses) == 2 and load(tmp_path)["optimizer_history"][-1]["num_updates"] == 82

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

"""Whole trainings with the optimizer over lists of tensors, which ``--fast`` uses on a GPU, against ``--fast`` on a CPU, bit for bit."""

from unittest.mock import patch

import pytest

from fairseq_reservoir.speed.fast_half import FastHalf
from fairseq_reservoir.speed.host_values import HostValues
from fairseq_reservoir.speed.list_clipping import ListClipping
from fairseq_reservoir.trainer.reservoir_trainer import ReservoirTrainer
from tests.integration.test_resume import assert_same_bits
from tests.support.commands import load, train

MODEL = "--fast --reservoir-encoder LF --decoder-layers 1 --clip-norm 0.5 --disable-validation --no-epoch-checkpoints"
RUNS = {
    "fp32": "",
    "bf16": "--bf16 --update-freq 2",
    "fp16": "--fp16 --fp16-no-flatten-grads --fp16-init-scale 4194304 --fp16-scale-window 4",
    "freeze_skip": "--bf16 --optimizer freeze_skip --freeze-schedule 3:encoder.layers.0;8:-encoder.layers.0",
    "masks": "--bf16 --arch supermask_one_layer_transformer --encoder-layers 2",
}


def on_lists():
    """Let a trainer on the CPU use the optimizer that ``--fast`` uses on a GPU."""
    return patch.object(ReservoirTrainer, "host_values", HostValues())


@pytest.mark.parametrize(
    "which", [pytest.param(run, marks=[pytest.mark.slow] if run in ("fp32", "bf16") else []) for run in RUNS]
)
def test_twelve_updates_and_a_resume(toy_data, tmp_path, which):
    flags = [word for word in MODEL.split() if which != "masks" or word not in ("--reservoir-encoder", "LF")]
    flags += RUNS[which].split()

    def run(name, updates):
        return train(toy_data, *flags, "--max-update", updates, "--save-dir", tmp_path / name)

    usual = run("usual", 12)
    with on_lists():
        if which != "fp16":  # fairseq saves no counter of updates since the last change of the loss scale
            run("lists", 9)
        rest = run("lists", 12)
    optimizer = rest.trainer.optimizer
    assert isinstance(optimizer, ListClipping if which == "fp32" else FastHalf)
    assert isinstance(getattr(optimizer, "fp32_optimizer", optimizer), ListClipping)
    assert rest.losses == usual.losses[-len(rest.losses) :]
    ours, theirs = load(tmp_path / "lists"), load(tmp_path / "usual")
    assert_same_bits(ours["model"], theirs["model"])
    assert_same_bits(ours["last_optimizer_state"], theirs["last_optimizer_state"])
    if which == "fp16":
        assert ours["last_optimizer_state"]["loss_scale"] < 4194304

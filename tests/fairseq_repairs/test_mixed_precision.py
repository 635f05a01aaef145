"""Half precision: the loss scale of ``--amp`` changes no bit of a training and goes on where it was; an overflow without a GPU.

torch's scaler works on CPUs too, where fairseq does not ask for one; autocast stays off, so that nothing is rounded.
"""

import contextlib

import pytest
import torch
from fairseq import optim
from fairseq.optim.amp_optimizer import AMPOptimizer

from fairseq_reservoir.fairseq_repairs import mixed_precision
from tests.support.commands import load, train

RUN = "--reservoir-encoder LT --decoder-layers 1 --clip-norm 0.5 --disable-validation".split()


@pytest.fixture(autouse=True)
def scaler_on_cpu(monkeypatch):
    """A scale of 128, fairseq's, which doubles after two updates; fairseq reads the interval from a flag that it does not have."""

    def scaler(init_scale):
        return torch.amp.GradScaler("cpu", init_scale=init_scale, growth_interval=2)

    monkeypatch.setattr(torch.cuda.amp, "GradScaler", scaler)


def weights(data, *flags):
    return train(data, *RUN, "--no-save", *flags).weights


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_the_scale_cancels(toy_data, optimizer):
    flags = ["--optimizer", optimizer, "--max-update", 5]
    plain, scaled = (weights(toy_data, *flags, *more) for more in ([], ["--amp"]))
    assert all(scaled[name].equal(tensor) for name, tensor in plain.items())


def test_the_defect(toy_data, monkeypatch):
    """One step of SGD: without the repair a 128th of it, unless --fp16-init-scale says another scale."""
    flags = ["--optimizer", "sgd", "--lr", 1, "--max-update", 1]
    run = train(toy_data, *RUN, "--no-save", *flags)
    monkeypatch.setattr(optim.AMPOptimizer, "step", AMPOptimizer.step)
    twice = train(toy_data, *RUN, "--no-save", *flags, "--amp")
    name = "decoder.layers.0.fc1.weight"
    steps = [trained.weights[name] - trained.initial[name] for trained in (run, twice)]
    assert steps[0].abs().max() > 1e-3
    torch.testing.assert_close(steps[1] * 128, steps[0], rtol=1e-2, atol=1e-5)


def test_the_scale_goes_on(toy_data, tmp_path):
    flags = [*RUN, "--amp", "--save-dir", tmp_path, "--save-interval-updates", 3]
    train(toy_data, *flags, "--max-update", 3)
    saved = load(tmp_path)["last_optimizer_state"]["amp_scaler"]
    assert saved["scale"] == 256 and saved["_growth_tracker"] == 1  # doubled after the second of three updates
    resumed = train(toy_data, *flags, "--max-update", 4).trainer.optimizer.scaler
    assert resumed.get_scale() == 512


def test_files_without_a_scale_are_read(toy_data, tmp_path):
    flags = [*RUN, "--amp", "--save-dir", tmp_path]
    train(toy_data, *flags, "--max-update", 3)
    file = tmp_path / "checkpoint_last.pt"
    checkpoint = torch.load(file, weights_only=False)
    del checkpoint["last_optimizer_state"]["amp_scaler"]
    torch.save(checkpoint, file)
    assert train(toy_data, *flags, "--max-update", 4).trainer.optimizer.scaler.get_scale() == 128


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU, on which fairseq's own line works")
def test_an_overflow_without_a_gpu(toy_data, monkeypatch, caplog):
    """A loss scale of 2 ** 20 is too large for the gradients of fp16; fairseq halves it until they fit."""
    flags = [*RUN, "--no-save", "--memory-efficient-fp16", "--fp16-init-scale", 2**20, "--max-update", 3]
    with caplog.at_level("INFO"):
        run = train(toy_data, *flags)
    assert "gradient overflow detected" in caplog.text and run.trainer.get_num_updates() == 3
    monkeypatch.setattr(mixed_precision, "overflow_skips_update", contextlib.nullcontext)
    # Torch for GPUs, which finds no driver, says another thing than torch for CPUs.
    error, words = (RuntimeError, "NVIDIA driver") if torch.backends.cuda.is_built() else (AssertionError, "CUDA")
    with pytest.raises(error, match=words):
        train(toy_data, *flags)

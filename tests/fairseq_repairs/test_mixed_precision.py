"""Mixed precision: the loss scale of ``--amp`` changes no bit of a training and is restored on resume; overflow without a GPU.

torch's gradient scaler works on CPUs too, although fairseq only uses it on GPUs. Autocast is off, so that nothing is rounded.
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
    """Use a CPU scaler with fairseq's scale of 128, doubled after two updates. fairseq has no flag for this interval."""

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


def test_plain_fairseq_divides_an_update_by_the_scale(toy_data, monkeypatch):
    """Without the repair, a step of SGD is divided by the loss scale: 128, the default of --fp16-init-scale."""
    flags = ["--optimizer", "sgd", "--lr", 1, "--max-update", 1]
    run = train(toy_data, *RUN, "--no-save", *flags)
    monkeypatch.setattr(optim.AMPOptimizer, "step", AMPOptimizer.step)
    plain = train(toy_data, *RUN, "--no-save", *flags, "--amp")
    name = "decoder.layers.0.fc1.weight"
    steps = [trained.weights[name] - trained.initial[name] for trained in (run, plain)]
    assert steps[0].abs().max() > 1e-3
    torch.testing.assert_close(steps[1] * 128, steps[0], rtol=1e-2, atol=1e-5)


def test_the_scale_is_restored_on_resume(toy_data, tmp_path):
    flags = [*RUN, "--amp", "--save-dir", tmp_path, "--save-interval-updates", 3]
    train(toy_data, *flags, "--max-update", 3)
    saved = load(tmp_path)["last_optimizer_state"]["amp_scaler"]
    assert saved["scale"] == 256 and saved["_growth_tracker"] == 1  # doubled after the second of three updates
    resumed = train(toy_data, *flags, "--max-update", 4).trainer.optimizer.scaler
    assert resumed.get_scale() == 512


def test_checkpoints_without_a_scale_load(toy_data, tmp_path):
    flags = [*RUN, "--amp", "--save-dir", tmp_path]
    train(toy_data, *flags, "--max-update", 3)
    file = tmp_path / "checkpoint_last.pt"
    checkpoint = torch.load(file, weights_only=False)
    del checkpoint["last_optimizer_state"]["amp_scaler"]
    torch.save(checkpoint, file)
    assert train(toy_data, *flags, "--max-update", 4).trainer.optimizer.scaler.get_scale() == 128


@pytest.mark.skipif(torch.cuda.is_available(), reason="fairseq's own code works on a GPU")
def test_an_overflow_without_a_gpu(toy_data, monkeypatch, caplog):
    """A loss scale of 2 ** 20 is too large for the gradients of fp16; fairseq halves it until they fit."""
    flags = [*RUN, "--no-save", "--memory-efficient-fp16", "--fp16-init-scale", 2**20, "--max-update", 3]
    with caplog.at_level("INFO"):
        run = train(toy_data, *flags)
    assert "gradient overflow detected" in caplog.text and run.trainer.get_num_updates() == 3
    monkeypatch.setattr(mixed_precision, "overflow_skips_update", contextlib.nullcontext)
    # Without a driver, torch for GPUs raises another error than torch for CPUs.
    error, message = (RuntimeError, "NVIDIA driver") if torch.backends.cuda.is_built() else (AssertionError, "CUDA")
    with pytest.raises(error, match=message):
        train(toy_data, *flags)

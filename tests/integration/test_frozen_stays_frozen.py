"""Frozen tensors keep their bits for 4 updates (slow: 200) of every optimizer in every number format. All others change."""

import hashlib

import pytest
import torch
from torch import nn

from fairseq_reservoir.random_tensors.fill import fill, reservoir_recipe
from tests.support.commands import train
from tests.support.letters import WITH_EVERY_KIND

FORMATS = {
    "fp32": [],
    "fp16": ["--fp16", "--fp16-no-flatten-grads"],
    "memory-efficient-fp16": ["--memory-efficient-fp16"],
    "bf16": ["--bf16"],
}
OPTIMIZERS = {
    "adam": ["--optimizer", "adam", "--lr", 0.003],
    "adafactor": ["--optimizer", "adafactor", "--lr", 0.003],
    "nag": ["--optimizer", "nag", "--lr", 0.1],
}
# Everything that could change a tensor without gradient: weight decay, clipping, a moving average, accumulated gradients.
PRESSURE = "--weight-decay 0.01 --clip-norm 0.1 --update-freq 2 --store-ema --ema-decay 0.99".split()
# Every kind of reservoir, and a component that a freeze spec freezes at its initial value.
BY_HAND = "--reservoir-encoder LTFGC --reservoir-decoder LTFGC --freeze encoder.layers.0.fc1".split()
MODEL = "--reservoir-encoder {encoder} --reservoir-decoder {decoder} --freeze encoder.layers.0.fc1".format(
    **WITH_EVERY_KIND
).split()


def _combinations():
    """All pairs of optimizer and number format. By default each optimizer once, adam with the fp32 copies of fp16."""
    usual = [("fp16", "adam"), ("fp32", "adafactor"), ("fp32", "nag")]
    for number_format in FORMATS:
        for optimizer in OPTIMIZERS:
            marks = [pytest.mark.slow] if (number_format, optimizer) not in usual else []
            yield pytest.param(number_format, optimizer, marks=marks)


@pytest.mark.parametrize("updates", [4, pytest.param(200, marks=pytest.mark.slow)])
@pytest.mark.parametrize("number_format, optimizer", _combinations())
def test_frozen_tensors_keep_their_sha256_and_trained_ones_move(toy_data, number_format, optimizer, updates):
    average_in_fp32 = ["--ema-fp32"] if optimizer == "adafactor" else []
    flags = [*MODEL, *PRESSURE, *FORMATS[number_format], *OPTIMIZERS[optimizer], *average_in_fp32]
    run = train(toy_data, *flags, "--max-update", updates, "--no-save", "--disable-validation")
    assert run.trainer.get_num_updates() == updates

    frozen = [entry.name for entry in run.model.slot_table.entries if not entry.trained]
    start = {name: run.initial[name].to(run.weights[name].dtype) for name in frozen}
    assert hashes(run.weights, frozen) == hashes(start, frozen)
    average = run.trainer.ema.get_model().state_dict()
    assert hashes(average, frozen) == hashes(start, frozen)
    if average_in_fp32:
        start_in_fp32 = {name: tensor.float() for name, tensor in start.items()}
        assert hashes(run.trainer.ema.fp32_params, frozen) == hashes(start_in_fp32, frozen)

    now = trained_values(run)
    assert len(now) + len(frozen) == len(run.model.slot_table.entries)
    began = {
        name: run.initial[name].to(run.weights[name].dtype) for name in now
    }  # the initial values of the fp32 copies
    still = {name for name, value in now.items() if torch.equal(value, began[name].to(value.dtype))}
    assert still <= without_gradient(now)


def test_reservoirs_follow_from_seed_and_name(toy_data):
    run = train(toy_data, *BY_HAND, "--max-update", 1, "--no-save", "--disable-validation")
    random_names = {e.name: e.random_name for e in run.model.slot_table.entries if e.random_name}
    # T F G C in each stack. G has two GRUs in the encoder and one in the decoder. The attention of the decoder's C is trained.
    assert len(random_names) == (16 + 6 + 10 + 13) + (26 + 6 + 6 + 13)
    blank = {name: nn.Parameter(torch.empty_like(run.weights[name])) for name in random_names}
    shapes = {name: tuple(tensor.shape) for name, tensor in blank.items()}
    fill(blank, {name: reservoir_recipe(name, drawn_as, shapes) for name, drawn_as in random_names.items()}, seed=3)
    assert hashes(blank, random_names) == hashes(run.weights, random_names)


def hashes(tensors, names):
    """SHA-256 of each tensor's bytes."""
    return {
        name: hashlib.sha256(tensors[name].detach().view(torch.uint8).numpy().tobytes()).hexdigest() for name in names
    }


def trained_values(run):
    """Trained tensors by name; with fp32 copies, those of the optimizer."""
    names = [name for name, parameter in run.model.named_parameters() if parameter.requires_grad]
    masters = getattr(run.trainer.optimizer, "fp32_params", None)
    return dict(zip(names, masters or [run.weights[name] for name in names], strict=True))


def without_gradient(names):
    """Biases of keys. They shift all scores of a query equally, so softmax cancels them."""
    return {name for name in names if name.endswith("k_proj.bias")}

"""A frozen tensor that changes during training is not saved, and quantization noise does not change it."""

import pytest
import torch

from fairseq_reservoir.errors import InputError
from fairseq_reservoir.freezing import reservoir_build
from fairseq_reservoir.random_tensors import digest
from fairseq_reservoir.trainer import frozen_guard
from tests.support.commands import error_of, load, train

NOISE = "--quant-noise-pq 0.1 --quant-noise-pq-block-size 8".split()
QUIET = "--no-epoch-checkpoints --disable-validation".split()
FORMATS = {
    "fp32": "",
    "fp16": "--fp16 --fp16-no-flatten-grads",
    "memory-efficient fp16": "--memory-efficient-fp16",
    "bf16": "--bf16",
}
SUPERMASK = "--arch supermask_one_layer_transformer --encoder-layers 2 --decoder-layers 2"
# Flags of a model and one of its frozen tensors: by a letter, by a spec, shared by masks, of one mask, shared by adapters, half
# precision.
MODELS = {
    "letter": ("--reservoir-encoder LT --reservoir-decoder L", "encoder.layers.1.fc1.weight"),
    "spec": (
        "--arch frozen_transformer --encoder-layers 1 --decoder-layers 1 --freeze att",
        "decoder.layers.0.self_attn.q_proj.bias",
    ),
    "random layer": (SUPERMASK, "encoder.random_layer.fc1"),
    "own weights": (f"{SUPERMASK} --mask-share none", "encoder.layers.1.fc1.frozen_weight"),
    "adapters": ("--reservoir-encoder T --reservoir-decoder L --frozen-adapter vera", "frozen_adapter.A_24x16"),
    "adapted": ("--reservoir-encoder T --reservoir-decoder L --frozen-adapter lora", "encoder.layers.0.fc2.weight"),
    "bf16 layers": ("--reservoir-encoder LT --reservoir-decoder L --frozen-dtype bf16", "encoder.layers.1.fc1.weight"),
}


def assert_guarded(run, name, folder):
    """Flip the lowest bit of the last entry of a frozen tensor, and flip it back."""
    tensor = run.trainer.get_model().state_dict(keep_vars=True)[name].detach()
    last = tensor.reshape(-1).view(torch.uint8)[-tensor.element_size() :]
    last[0] ^= 1
    message = f"flipped.pt: not saved, because the frozen tensor {name} changed during training; earlier checkpoints are unaffected"
    with pytest.raises(InputError, match=message):
        run.trainer.save_checkpoint(str(folder / "flipped.pt"), {})
    assert not (folder / "flipped.pt").exists()
    last[0] ^= 1
    run.trainer.save_checkpoint(str(folder / "whole.pt"), {})
    assert (folder / "whole.pt").exists()


@pytest.mark.parametrize("model", MODELS)
def test_a_changed_bit_is_not_saved(toy_data, tmp_path, model):
    flags, name = MODELS[model]
    run = train(toy_data, *flags.split(), *QUIET, "--max-update", 1, "--save-dir", tmp_path)
    assert_guarded(run, name, tmp_path)


@pytest.mark.parametrize("number_format", list(FORMATS)[1:])
def test_in_half_precision(toy_data, tmp_path, number_format):
    flags, name = MODELS["letter"]
    run = train(
        toy_data, *flags.split(), *QUIET, *FORMATS[number_format].split(), "--max-update", 1, "--save-dir", tmp_path
    )
    assert_guarded(run, name, tmp_path)


def test_hashes_are_taken_when_training_starts_and_at_each_save(toy_data, tmp_path, monkeypatch):
    """Hashes include tensors loaded from a checkpoint, but not those that a schedule freezes and trains again."""
    calls, of_tensor = [], digest.of_tensor
    monkeypatch.setattr(digest, "of_tensor", lambda tensor: calls.append(tensor) or of_tensor(tensor))
    flags = ["--reservoir-encoder", "LT", "--reservoir-decoder", "L", *QUIET]
    first = train(toy_data, *flags, "--max-update", 2, "--save-dir", tmp_path / "first")
    frozen = len(frozen_guard.frozen_tensors(first.trainer))
    assert (
        frozen == 16 and len(calls) == 2 * frozen
    )  # T's four projections, two LayerNorms and two matrices, each with its bias
    calls.clear()
    schedule = [
        "--optimizer",
        "freeze_skip",
        "--freeze-schedule",
        "1:decoder.ffn;3:-decoder.ffn",
        "--seed",
        4,
        "--reservoir-seed",
        3,
    ]
    start = ["--finetune-from-model", tmp_path / "first" / "checkpoint_last.pt"]
    run = train(
        toy_data,
        *flags,
        *schedule,
        *start,
        "--save-interval-updates",
        1,
        "--max-update",
        5,
        "--save-dir",
        tmp_path / "second",
    )
    saves = len(list((tmp_path / "second").glob("checkpoint_1_*.pt")))
    assert (saves, run.trainer.get_num_updates()) == (5, 5)
    assert len(calls) == (1 + saves) * frozen
    calls.clear()
    resumed = train(toy_data, *flags, *schedule, "--max-update", 6, "--save-dir", tmp_path / "second")
    assert resumed.trainer.get_num_updates() == 6 and len(calls) == 2 * frozen


def test_a_run_that_ruins_them_ends_in_one_line(toy_data, tmp_path, monkeypatch):
    """fairseq's own noise does this."""
    monkeypatch.setattr(reservoir_build, "protect_frozen", lambda model: None)
    flags = ["--reservoir-encoder", "LT", "--reservoir-decoder", "L", *NOISE, *QUIET, "--max-update", 2]
    error, status = error_of(toy_data, *flags, "--save-dir", tmp_path)
    assert error == (
        f"fairseq-train: error: {tmp_path}/checkpoint_last.pt: not saved, because the frozen tensor "
        "encoder.layers.1.fc1.weight and 1 more changed during training; earlier checkpoints are unaffected\n"
    )
    assert status == 2 and not list(tmp_path.iterdir())


NOISY = (
    "--reservoir-encoder LT --reservoir-decoder T",
    "--arch frozen_transformer --encoder-layers 2 --decoder-layers 1 --freeze ffn,att --checkpoint-activations",
)


@pytest.mark.parametrize(
    "model, number_format",
    [
        (NOISY[0], "bf16"),
        (NOISY[1], "fp32"),
        pytest.param(NOISY[0], "fp32", marks=pytest.mark.slow),
        pytest.param(NOISY[1], "bf16", marks=pytest.mark.slow),
    ],
)
def test_quantization_noise_leaves_them_alone(toy_data, tmp_path, model, number_format):
    flags = [*model.split(), *NOISE, *QUIET, *FORMATS[number_format].split()]
    run = train(toy_data, *flags, "--max-update", 5, "--save-dir", tmp_path)
    stored, frozen = load(tmp_path)["model"], [e.name for e in run.model.slot_table.entries if not e.trained]
    assert len(frozen) >= 26
    for name in frozen:
        assert stored[name].equal(run.initial[name].to(run.weights[name].dtype).float()), name


def test_quantization_noise_does_not_change_tensors_that_a_schedule_froze(toy_data):
    """The model is fairseq's own. Our models protect all frozen tensors without a schedule."""
    flags = "--arch transformer --encoder-layers 1 --decoder-layers 1 --no-save --disable-validation".split()
    flags += [*NOISE, "--optimizer", "freeze_skip", "--freeze-schedule", "1:ffn"]
    one, five = (train(toy_data, *flags, "--max-update", updates).weights for updates in (1, 5))
    names = [name for name in one if ".fc1." in name or ".fc2." in name]
    assert len(names) == 8 and all(one[name].equal(five[name]) for name in names)
    assert not one["encoder.quant_noise.weight"].equal(five["encoder.quant_noise.weight"])


def test_product_quantization_is_refused(toy_data):
    refused = (
        "fairseq-train: error: --quantization-config-path pq.yaml: "
        "would replace frozen matrices and masks by code books; remove the flag\n"
    )
    for model in ("--reservoir-encoder LT", SUPERMASK, "--arch frozen_transformer --freeze emb"):
        assert error_of(toy_data, *model.split(), "--quantization-config-path", "pq.yaml", "--no-save") == (refused, 2)

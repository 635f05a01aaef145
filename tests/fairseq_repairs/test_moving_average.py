"""``--store-ema`` begins from any checkpoint: one of a training without an average, an export, one with an average."""

import contextlib

import pytest
import torch

from fairseq_reservoir.checkpoint.export import export
from fairseq_reservoir.fairseq_repairs import moving_average
from tests.support.commands import load, train

EMA = "--store-ema --ema-decay 0.75 --reservoir-encoder LF --encoder-layers 2".split()


@pytest.fixture(scope="module")
def begun(toy_data, tmp_path_factory):
    """Two updates without an average, and two with one."""
    folder = tmp_path_factory.mktemp("begun")
    for name, flags in (("plain", EMA[3:]), ("averaged", EMA)):
        train(toy_data, *flags, "--max-update", 2, "--save-dir", folder / name)
    export(folder / "plain" / "checkpoint_last.pt", folder / "plain.safetensors")
    return folder


def average_after_one_update(start, state):
    """0.75 of what it began with and 0.25 of the weights after the update, of every tensor that is trained."""
    trained = state["model"]
    average = state["extra_state"]["ema"]
    names = [name for name in trained if trained[name].is_floating_point() and not trained[name].equal(start[name])]
    names = [name for name in names if "version" not in name]  # whose average fairseq does not take
    assert len(names) > 10
    for name in names:
        torch.testing.assert_close(average[name], 0.75 * start[name] + 0.25 * trained[name])


@pytest.mark.parametrize("fp32", [(), ("--ema-fp32",)], ids=["", "fp32"])
@pytest.mark.parametrize("source", ["plain/checkpoint_last.pt", "plain.safetensors"])
def test_a_new_training(toy_data, tmp_path, begun, source, fp32):
    train(toy_data, *EMA, *fp32, "--finetune-from-model", begun / source, "--max-update", 1, "--save-dir", tmp_path)
    average_after_one_update(load(begun / "plain")["model"], load(tmp_path))


def test_a_resumed_training(toy_data, tmp_path, begun, caplog):
    before = begun / "plain" / "checkpoint_last.pt"
    train(toy_data, *EMA, "--restore-file", before, "--max-update", 3, "--save-dir", tmp_path)
    assert f"--store-ema: {before} has no average; the average begins at the values of its model" in caplog.text
    average_after_one_update(load(begun / "plain")["model"], load(tmp_path))


def test_at_the_values_of_another_model(toy_data, tmp_path, begun, caplog):
    """``--ema-seed-model`` says where the average begins; the training itself begins at the other checkpoint."""
    seed, start = (begun / name / "checkpoint_last.pt" for name in ("averaged", "plain"))
    flags = "--ema-seed-model", seed, "--finetune-from-model", start, "--max-update", 1, "--save-dir", tmp_path
    train(toy_data, *EMA, *flags)
    assert (
        f"--store-ema: {start} has no average; the average begins at the values of --ema-seed-model {seed}"
        in caplog.text
    )
    average_after_one_update(load(begun / "averaged")["extra_state"]["ema"], load(tmp_path))


def test_an_average_goes_on(toy_data, tmp_path, begun):
    resumed, whole = tmp_path / "resumed", tmp_path / "whole"
    restore = "--restore-file", begun / "averaged" / "checkpoint_last.pt"
    train(toy_data, *EMA, *restore, "--max-update", 4, "--save-dir", resumed)
    train(toy_data, *EMA, "--max-update", 4, "--save-dir", whole)
    averages = [load(folder)["extra_state"]["ema"] for folder in (resumed, whole)]
    assert averages[0].keys() == averages[1].keys()
    assert all(tensor.equal(averages[1][name]) for name, tensor in averages[0].items())


@pytest.mark.parametrize("fp32", [(), ("--ema-fp32",)], ids=["", "fp32"])
def test_a_tensor_of_several_names_is_averaged_once(toy_data, tmp_path, fp32):
    """Embeddings of the encoder, the decoder and its output; fairseq's share of the new value is 1 - 0.75 ** 3."""
    flags = [*EMA, *fp32, "--share-all-embeddings", "--save-dir", tmp_path, "--max-update"]
    begin, end = (train(toy_data, *flags, updates).weights for updates in (1, 2))
    for name in ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight", "decoder.output_projection.weight"):
        average = load(tmp_path)["extra_state"]["ema"][name]
        torch.testing.assert_close(average, 0.75 * begin[name] + 0.25 * end[name])


@pytest.mark.parametrize("stop", [3, pytest.param(4, marks=pytest.mark.slow)])
@pytest.mark.parametrize("every", [3, pytest.param(0, marks=pytest.mark.slow)])  # fairseq takes 0 for 1
def test_updates_since_the_last_average_are_counted_on(toy_data, tmp_path, every, stop):
    every = [*EMA, "--ema-update-freq", every]
    train(toy_data, *every, "--max-update", 8, "--save-dir", tmp_path / "whole")
    for updates in (stop, 8):
        train(toy_data, *every, "--max-update", updates, "--save-dir", tmp_path / "resumed")
    averages = [load(tmp_path / name)["extra_state"]["ema"] for name in ("whole", "resumed")]
    assert all(tensor.equal(averages[1][name]) for name, tensor in averages[0].items())


def test_a_new_training_counts_from_its_own_first_update(toy_data, tmp_path):
    every = [*EMA, "--ema-update-freq", 3]
    train(toy_data, *every, "--max-update", 2, "--save-dir", tmp_path / "begun")  # two since the last average
    start = "--finetune-from-model", tmp_path / "begun" / "checkpoint_last.pt"
    run = train(toy_data, *every, *start, "--max-update", 1, "--no-save")
    assert run.trainer.ema.update_freq_counter == 1


def test_fairseq_alone_ends(toy_data, tmp_path, begun, monkeypatch):
    monkeypatch.setattr(moving_average, "average_loaded_later", contextlib.nullcontext)
    start = "--finetune-from-model", begun / "plain" / "checkpoint_last.pt"
    with pytest.raises(KeyError, match="model"):
        train(toy_data, *EMA, *start, "--max-update", 1, "--save-dir", tmp_path)

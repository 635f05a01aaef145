"""``--store-ema`` starts from any checkpoint: one with an average, one without, or an export."""

import contextlib

import pytest
import torch
from fairseq.dataclass.configs import EMAConfig
from fairseq.models.ema.ema import EMA as Average

from fairseq_reservoir.checkpoint.export import export
from fairseq_reservoir.fairseq_repairs import moving_average
from tests.support.commands import load, train

EMA = "--store-ema --ema-decay 0.75 --reservoir-encoder LF --decoder-layers 1 --disable-validation --no-epoch-checkpoints".split()


@pytest.fixture(scope="module")
def trained_runs(toy_data, tmp_path_factory):
    """Train two updates without an average, and two with one. Return the folder of both runs and an export."""
    folder = tmp_path_factory.mktemp("begun")
    for name, flags in (("plain", EMA[3:]), ("averaged", EMA)):
        train(toy_data, *flags, "--max-update", 2, "--save-dir", folder / name)
    export(folder / "plain" / "checkpoint_last.pt", folder / "plain.safetensors")
    return folder


def check_average_after_one_update(start, state):
    """Check that the average of each trained tensor is 0.75 * its start value + 0.25 * its value after the update."""
    trained = state["model"]
    average = state["extra_state"]["ema"]
    names = [name for name in trained if trained[name].is_floating_point() and not trained[name].equal(start[name])]
    names = [name for name in names if "version" not in name]  # fairseq does not average version buffers
    assert len(names) > 10
    for name in names:
        torch.testing.assert_close(average[name], 0.75 * start[name] + 0.25 * trained[name])


@pytest.mark.parametrize("source, fp32", [("plain/checkpoint_last.pt", ["--ema-fp32"]), ("plain.safetensors", [])])
def test_a_new_training_from_a_checkpoint_without_an_average(toy_data, tmp_path, trained_runs, source, fp32):
    train(
        toy_data, *EMA, *fp32, "--finetune-from-model", trained_runs / source, "--max-update", 1, "--save-dir", tmp_path
    )
    check_average_after_one_update(load(trained_runs / "plain")["model"], load(tmp_path))


def test_a_resumed_training_without_an_average(toy_data, tmp_path, trained_runs, caplog):
    before = trained_runs / "plain" / "checkpoint_last.pt"
    train(toy_data, *EMA, "--restore-file", before, "--max-update", 3, "--save-dir", tmp_path)
    assert f"--store-ema: {before} has no average; the average begins at the weights of its model" in caplog.text
    check_average_after_one_update(load(trained_runs / "plain")["model"], load(tmp_path))


def test_an_average_that_starts_at_another_model(toy_data, tmp_path, trained_runs, caplog):
    """The average starts at the model of ``--ema-seed-model``. The training itself starts at the other checkpoint."""
    seed, start = (trained_runs / name / "checkpoint_last.pt" for name in ("averaged", "plain"))
    flags = "--ema-seed-model", seed, "--finetune-from-model", start, "--max-update", 1, "--save-dir", tmp_path
    train(toy_data, *EMA, *flags)
    assert (
        f"--store-ema: {start} has no average; the average begins at the weights of --ema-seed-model {seed}"
        in caplog.text
    )
    check_average_after_one_update(load(trained_runs / "averaged")["extra_state"]["ema"], load(tmp_path))


def test_an_average_is_restored_on_resume(toy_data, tmp_path, trained_runs):
    resumed, whole = tmp_path / "resumed", tmp_path / "whole"
    restore = "--restore-file", trained_runs / "averaged" / "checkpoint_last.pt"
    train(toy_data, *EMA, *restore, "--max-update", 3, "--save-dir", resumed)
    train(toy_data, *EMA, "--max-update", 3, "--save-dir", whole)
    averages = [load(folder)["extra_state"]["ema"] for folder in (resumed, whole)]
    assert averages[0].keys() == averages[1].keys()
    assert all(tensor.equal(averages[1][name]) for name, tensor in averages[0].items())


@pytest.mark.parametrize("fp32", [[], pytest.param(["--ema-fp32"], marks=pytest.mark.slow)], ids=["", "fp32"])
def test_a_tied_tensor_is_averaged_once(toy_data, tmp_path, fp32):
    """Encoder, decoder and output share their embeddings. Plain fairseq gives the new value a weight of 1 - 0.75 ** 3."""
    flags = [*EMA, *fp32, "--share-all-embeddings", "--save-dir", tmp_path, "--max-update"]
    begin, end = (train(toy_data, *flags, updates).weights for updates in (1, 2))
    for name in ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight", "decoder.output_projection.weight"):
        average = load(tmp_path)["extra_state"]["ema"][name]
        torch.testing.assert_close(average, 0.75 * begin[name] + 0.25 * end[name])


def test_an_untrained_tensor_that_changes_is_averaged():
    """Such as a running mean. By hand: 0.75 * 0 + 0.25 * 8. The trained bias is averaged by fairseq."""
    model = torch.nn.Linear(2, 1)
    model.weight.requires_grad_(False).zero_()
    average = Average(model, EMAConfig(store_ema=True, ema_decay=0.75))
    model.weight.fill_(8)
    average.step(model)
    assert average.model.weight.tolist() == [[2, 2]] and average.model.bias.equal(model.bias)


@pytest.mark.parametrize("every, stop, end", [
    (3, 2, 4),  # one average, after update 3; a lost count would delay it to update 5
    pytest.param(3, 3, 8, marks=pytest.mark.slow),
    pytest.param(3, 4, 8, marks=pytest.mark.slow),
])  # fmt: skip
def test_the_count_of_updates_since_the_last_average_is_restored(toy_data, tmp_path, every, stop, end):
    every = [*EMA, "--ema-update-freq", every]
    train(toy_data, *every, "--max-update", end, "--save-dir", tmp_path / "whole")
    for updates in (stop, end):
        train(toy_data, *every, "--max-update", updates, "--save-dir", tmp_path / "resumed")
    averages = [load(tmp_path / name)["extra_state"]["ema"] for name in ("whole", "resumed")]
    assert all(tensor.equal(averages[1][name]) for name, tensor in averages[0].items())


def test_a_new_training_resets_the_count_of_updates(toy_data, tmp_path):
    every = [*EMA, "--ema-update-freq", 3]
    train(toy_data, *every, "--max-update", 2, "--save-dir", tmp_path / "begun")  # two updates since the last average
    start = "--finetune-from-model", tmp_path / "begun" / "checkpoint_last.pt"
    run = train(toy_data, *every, *start, "--max-update", 1, "--no-save")
    assert run.trainer.ema.update_freq_counter == 1


def test_plain_fairseq_fails(toy_data, tmp_path, trained_runs, monkeypatch):
    monkeypatch.setattr(moving_average, "average_loaded_later", contextlib.nullcontext)
    start = "--finetune-from-model", trained_runs / "plain" / "checkpoint_last.pt"
    with pytest.raises(KeyError, match="model"):
        train(toy_data, *EMA, *start, "--max-update", 1, "--no-save")

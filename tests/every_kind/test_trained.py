"""A trained model with a layer of every kind: frozen bits in float32 and bf16, resuming, and export."""

import pytest
import torch

from fairseq_reservoir.checkpoint import read_state_dict
from fairseq_reservoir.checkpoint.export import export
from tests.support.commands import load, train
from tests.support.letters import WITH_EVERY_KIND

PLANS = "--reservoir-encoder {encoder} --reservoir-decoder {decoder} --disable-validation".format(
    **WITH_EVERY_KIND
).split()


@pytest.fixture(scope="module")
def whole(toy_data, tmp_path_factory):
    """4 updates in one run; the run, and its folder with a checkpoint of update 2."""
    folder = tmp_path_factory.mktemp("every_kind")
    return train(toy_data, *PLANS, "--max-update", 4, "--save-interval-updates", 2, "--save-dir", folder), folder


def frozen(run):
    return [entry.name for entry in run.model.slot_table.entries if not entry.trained]


def test_frozen_tensors_keep_their_bits_and_the_rest_changes(whole):
    run = whole[0]
    moved = {name for name, tensor in run.weights.items() if not tensor.equal(run.initial[name])}
    assert not moved & set(frozen(run))
    still = {entry.name for entry in run.model.slot_table.entries if entry.trained} - moved
    assert {name for name in still if not name.endswith("k_proj.bias")} == set()  # added to every score of a query


def test_it_resumes_bit_for_bit(whole, toy_data, tmp_path):
    run, folder = whole
    resumed = train(
        toy_data, *PLANS, "--max-update", 4, "--restore-file", folder / "checkpoint_1_2.pt", "--save-dir", tmp_path
    )
    assert len(run.losses) == 4 and resumed.losses == run.losses[2:]
    assert all(tensor.equal(run.weights[name]) for name, tensor in resumed.weights.items())


def test_its_export_comes_back_bit_for_bit(whole, tmp_path):
    expected = load(whole[1])["model"]
    export(whole[1] / "checkpoint_last.pt", tmp_path / "model.safetensors")
    state = read_state_dict(tmp_path / "model.safetensors")
    assert state.keys() == expected.keys() and all(state[name].equal(tensor) for name, tensor in expected.items())


def test_bf16(toy_data):
    run = train(toy_data, *PLANS, "--bf16", "--max-update", 2, "--no-save")
    assert all(torch.tensor(run.losses).isfinite())
    for name in frozen(run):
        assert run.weights[name].dtype == torch.bfloat16 and run.weights[name].equal(run.initial[name].bfloat16()), name

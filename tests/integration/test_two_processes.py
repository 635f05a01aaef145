"""Two CPU ranks train the same reservoir transformer as one process that accumulates the gradients of two batches."""

import json

import pytest
import torch

from tests.support.commands import RUN as COMMON, USER_DIR, load, start_training, train
from tests.support.letters import WITH_EVERY_KIND
from tests.support.warm_start import run_command

# 160 sentences in batches of 8: 20 batches, 10 updates of two.
RUN = "--batch-size 8 --dropout 0 --max-epoch 1 --lr 0.001 --reservoir-encoder {encoder} --reservoir-decoder {decoder}"
RUN = RUN.format(**WITH_EVERY_KIND).split()


@pytest.fixture(scope="module")
def alone(toy_data, tmp_path_factory):
    """One process: the run, and its checkpoint."""
    folder = tmp_path_factory.mktemp("alone")
    run = train(toy_data, *RUN, "--update-freq", 2, "--save-dir", folder)
    assert len(run.losses) == 10
    return run, load(folder), folder


# Also with legacy_ddp: the two processes of test_freeze_skip.
@pytest.mark.parametrize("backend", ["pytorch_ddp", pytest.param("legacy_ddp", marks=pytest.mark.slow)])
def test_two_processes_are_one(toy_data, alone, tmp_path, backend):
    flags = [*RUN, "--distributed-world-size", 2, "--ddp-backend", backend, "--save-dir", tmp_path]
    ended = start_training(toy_data, *flags)
    assert ended.returncode == 0, ended.stderr
    run, expected, _ = alone
    checkpoint = load(tmp_path)
    assert checkpoint["optimizer_history"][-1]["num_updates"] == 10
    together, expected = checkpoint["model"], expected["model"]
    assert together.keys() == expected.keys()
    for entry in run.model.slot_table.entries:
        if entry.trained:
            # Adam makes a step of the gradient's sign where it is nearly zero, so a rounding error may be visible.
            torch.testing.assert_close(together[entry.name], expected[entry.name], rtol=1e-4, atol=1e-5)
        else:
            assert torch.equal(together[entry.name], expected[entry.name]), entry.name


@pytest.mark.slow
def test_block_momentum_leaves_frozen_tensors_alone(toy_data, alone, tmp_path):
    ended = start_training(
        toy_data, *RUN, "--distributed-world-size", 2, "--use-bmuf", "--global-sync-iter", 2, "--save-dir", tmp_path
    )
    assert ended.returncode == 0, ended.stderr
    run, after = alone[0], load(tmp_path)["model"]
    for entry in run.model.slot_table.entries:
        assert torch.equal(after[entry.name], run.initial[entry.name]) != entry.trained, entry.name


@pytest.mark.slow
def test_validation_with_an_odd_number_of_batches_on_two_ranks(alone, toy_data):
    """8 sentences in batches of 3. The second rank has no third batch."""
    folder = alone[2]
    flags = "--task translation --batch-size 3 --required-batch-size-multiple 1 --log-format json --cpu".split()
    said = []
    for processes in (1, 2):
        ended = run_command(
            "fairseq-validate",
            toy_data,
            "--user-dir",
            USER_DIR,
            "--path",
            folder / "checkpoint_last.pt",
            "--distributed-world-size",
            processes,
            *flags,
        )
        assert ended.returncode == 0, ended.stderr
        (line,) = {
            line[line.index("{") :] for line in (ended.stdout + ended.stderr).splitlines() if "valid_loss" in line
        }
        said.append(json.loads(line)["valid_loss"])
    assert said[0] == said[1]


def test_a_rank_without_trained_layers_warns(toy_data, tmp_path):
    """torch itself would abort or hang, because LayerDrop drops the only trained layer on one rank."""
    flags = "--arch frozen_transformer_tiny --freeze-except encoder.layers.0 --encoder-layerdrop 0.5 --find-unused-parameters".split()
    flags += ["--batch-size", 8, "--max-epoch", 4, "--save-dir", tmp_path, "--distributed-world-size", 2]
    ended = run_command("fairseq-train", toy_data, "--user-dir", USER_DIR, *flags, *COMMON)
    assert ended.returncode != 0
    assert (
        "if only some ranks skip the backward pass, the other ranks wait for the missing gradients; give --ddp-backend legacy_ddp"
        in ended.stdout + ended.stderr
    )


def test_fast_with_a_process_that_has_no_batch_left(toy_data, tmp_path):
    """160 sentences in batches of 32: in the third update one rank has no batch, and takes part with a dummy batch."""
    flags = (
        "--batch-size 32 --dropout 0 --max-epoch 1 --lr 0.001 --reservoir-encoder LF --decoder-layers 1 --fast".split()
    )
    flags += "--criterion label_smoothed_cross_entropy --label-smoothing 0.1".split()
    ended = start_training(toy_data, *flags, "--distributed-world-size", 2, "--save-dir", tmp_path)
    assert ended.returncode == 0, ended.stderr
    assert load(tmp_path)["optimizer_history"][-1]["num_updates"] == 3

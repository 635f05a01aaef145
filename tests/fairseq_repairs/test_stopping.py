"""End of a training: --patience across a resume, a reached --max-update, non-finite gradients, and earlier runs in the process."""

import shutil

import fairseq_cli.train
import pytest
from fairseq import checkpoint_utils
from fairseq.logging import metrics

from tests.support import commands
from tests.support.commands import load, train

SMALL = "--reservoir-encoder L --decoder-layers 1 --no-epoch-checkpoints --batch-size 80".split()


def epochs(run):
    return run.trainer.get_num_updates() // 2  # 160 sentences in batches of 80


def test_patience_is_counted_across_a_resume(toy_data, tmp_path):
    """With a learning rate of 0 no validation is better than the first. A patience of 2 ends the run after the third."""
    flags = [*SMALL, "--lr", 0, "--dropout", 0, "--patience", 2]
    assert epochs(train(toy_data, *flags, "--save-dir", tmp_path / "whole")) == 3
    train(toy_data, *flags, "--max-epoch", 2, "--save-dir", tmp_path / "parts")
    shutil.copytree(tmp_path / "parts", tmp_path / "reset")
    assert epochs(train(toy_data, *flags, "--save-dir", tmp_path / "parts")) == 3
    assert epochs(train(toy_data, *flags, "--save-dir", tmp_path / "parts")) == 3  # the training is already finished
    # --reset-meters resets the best score and the patience.
    assert epochs(train(toy_data, *flags, "--save-dir", tmp_path / "reset", "--reset-meters")) == 2 + 3


def test_a_finished_training_makes_no_further_update(toy_data, tmp_path, caplog):
    flags = [*SMALL, "--max-update", 3, "--save-dir", tmp_path]
    train(toy_data, *flags)
    before = (tmp_path / "checkpoint_last.pt").read_bytes()
    with caplog.at_level("INFO"):
        assert train(toy_data, *flags).trainer.get_num_updates() == 3
    assert "--max-update 3: the checkpoint already has at least this many updates; nothing to do" in caplog.text
    assert (tmp_path / "checkpoint_last.pt").read_bytes() == before
    assert train(toy_data, *flags, "--max-update", 4).trainer.get_num_updates() == 4


@pytest.mark.parametrize("arch", ["reservoir_transformer", "supermask_one_layer_transformer"])
def test_a_diverging_training_raises_an_error(toy_data, tmp_path, arch):
    """fairseq writes crash.pt into the folder, even with --no-save."""
    small = "--encoder-layers 1 --decoder-layers 1 --batch-size 40 --no-save --max-update 4 --lr 1e35".split()
    with pytest.raises(FloatingPointError, match="gradients are Nan/Inf"):
        train(toy_data, "--arch", arch, *small, "--save-dir", tmp_path)


def test_earlier_runs_in_the_same_process_have_no_effect(toy_data, tmp_path, monkeypatch):
    """The jobs of a hydra multirun share a process."""
    monkeypatch.setattr(commands, "forget_earlier_runs", lambda: metrics.reset())
    checkpoint_utils.save_checkpoint.best = 0.0
    fairseq_cli.train.should_stop_early.best, fairseq_cli.train.should_stop_early.num_runs = 0.0, 1
    run = train(toy_data, *SMALL, "--patience", 2, "--max-epoch", 3, "--save-dir", tmp_path)
    assert epochs(run) == 3
    assert load(tmp_path, "checkpoint_best.pt")["extra_state"]["best"] > 1

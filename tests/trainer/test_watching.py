"""docs/watching-a-training.md: curves for TensorBoard and for Weights & Biases (offline), each if its package is installed."""

import os
import sys

import pytest

from tests.support.commands import command_line
from tests.support.warm_start import run_command

FLAGS = "--reservoir-encoder LF --reservoir-decoder L --max-update 2 --log-interval 1 --save-dir run-7 --no-epoch-checkpoints".split()


def _train(data, folder, *flags):
    words = command_line(data, *FLAGS, *flags, "--log-format", "simple")
    environment = os.environ | {"WANDB_MODE": "offline", "PYTHONPATH": os.pathsep.join(sys.path)}
    ended = run_command("fairseq-train", *words[1:], cwd=folder, env=environment)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout + ended.stderr


def test_curves_for_tensorboard(toy_data, tmp_path):
    pytest.importorskip("tensorboardX")
    _train(toy_data, tmp_path, "--tensorboard-logdir", "curves")
    for part in ("train_inner", "train", "valid"):
        (events,) = (tmp_path / "curves" / part).glob("events.out.tfevents.*")
        assert b"loss" in events.read_bytes()


def test_runs_for_weights_and_biases(toy_data, tmp_path):
    pytest.importorskip("wandb")
    _train(toy_data, tmp_path, "--wandb-project", "frozen")
    files = list((tmp_path / "wandb").glob("offline-run-*/*.wandb"))
    # The configuration and the run's name, the last part of --save-dir.
    assert any(b"reservoir_encoder" in file.read_bytes() and b"run-7" in file.read_bytes() for file in files)

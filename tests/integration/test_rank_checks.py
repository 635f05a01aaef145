"""Ranks with different frozen tensors stop at the start. A killed rank ends the others, and the run resumes."""

import hashlib

import pytest
import torch

from fairseq_reservoir.errors import InputError
from fairseq_reservoir.trainer.rank_checks import hashes, refuse_lone_ranks, refuse_other_files
from tests.support.building import build, build_supermask
from tests.support.commands import TINY, error_of, load, start_training, train

# A --user-dir of ours with special behaviour on rank 1, as on a broken host or with another version.
OURS = "import os, signal, torch, torch.distributed as dist\nimport fairseq_reservoir\nfrom fairseq.trainer import Trainer\n\n"
PERTURBED = (
    OURS
    + """
from fairseq_reservoir.trainer import rank_checks

def perturbed(model, *others, compare=rank_checks.compare):
    if dist.get_rank() == 1:
        with torch.no_grad():
            model.get_parameter("TENSOR")[3, 2] += 1e-6
    compare(model, *others)

rank_checks.compare = perturbed
"""
)
BLIND = (
    OURS
    + """
from fairseq.file_io import PathManager

def isfile(path, original=PathManager.isfile):
    return original(path) and not (dist.is_initialized() and dist.get_rank() == 1)

PathManager.isfile = staticmethod(isfile)
"""
)
UNSYNCED = (
    OURS
    + """
from fairseq.file_io import PathManager

def exists(path, original=PathManager.exists):
    return original(path) and not (path.endswith("last.pt") and dist.is_initialized() and dist.get_rank() == 1)

PathManager.exists = staticmethod(exists)
"""
)
KILLED = (
    OURS
    + """
def train_step(self, samples, raise_oom=False, original=Trainer.train_step):
    if dist.get_rank() == 1 and self.get_num_updates() == 7:
        os.kill(os.getpid(), signal.SIGKILL)
    return original(self, samples, raise_oom)

Trainer.train_step = train_step
"""
)
ONE = "--reservoir-encoder LF --reservoir-decoder L --batch-size 8 --max-epoch 1".split()
RUN = [*ONE, *"--distributed-world-size 2 --ddp-backend legacy_ddp".split()]


def user_dir(folder, name, text):
    (folder / name).mkdir()
    (folder / name / "__init__.py").write_text(text)
    return ["--user-dir", folder / name]


def test_hashed_tensors():
    model = build("LF", "L")
    found = hashes(model)
    assert set(found) >= {
        f"encoder.layers.1.ffn.{part}.{kind}" for part in ("fc1", "fc2") for kind in ("weight", "bias")
    }
    assert not any(name.startswith(("encoder.layers.0", "decoder.layers", "encoder.embed_tokens")) for name in found)
    weight = model.encoder.layers[1].ffn.fc1.weight
    assert found["encoder.layers.1.ffn.fc1.weight"] == hashlib.sha256(weight.detach().numpy().tobytes()).hexdigest()
    weight.data[0, 0] += 1e-6
    changed = hashes(model)
    assert {name for name in found if found[name] != changed[name]} == {"encoder.layers.1.ffn.fc1.weight"}
    half = hashes(model.bfloat16())["encoder.layers.1.ffn.fc1.weight"]
    assert half == hashlib.sha256(weight.detach().view(torch.int16).numpy().tobytes()).hexdigest()


def test_shared_random_weights_are_hashed():
    model = build_supermask()
    shared = {name for name, buffer in model.named_buffers() if buffer.dim() == 2}
    assert len(shared) > 6 and shared <= set(hashes(model))


def test_tensors_that_a_schedule_freezes_at_the_start_are_hashed():
    name = "decoder.layers.0.fc1.weight"
    model = build("L", "L")
    assert hashes(model, {name}).keys() - hashes(model).keys() == {name}


SCHEDULE = "--optimizer freeze_skip --freeze-schedule 0:decoder.ffn".split()


@pytest.mark.parametrize(
    "tensor, flags",
    [
        ("encoder.layers.1.ffn.fc1.weight", []),
        pytest.param("decoder.layers.0.fc1.weight", SCHEDULE, marks=pytest.mark.slow),
    ],
)
def test_a_rank_with_another_tensor_is_named(toy_data, tmp_path, tensor, flags):
    plugin = user_dir(tmp_path, "perturbed", PERTURBED.replace("TENSOR", tensor))
    ended = start_training(toy_data, *RUN, *flags, "--save-dir", tmp_path / "run", *plugin)
    expected = f"rank 1: the frozen tensor {tensor} differs from the other ranks"
    assert ended.returncode != 0 and expected in ended.stderr and "Traceback" not in ended.stderr
    assert list((tmp_path / "run").glob("*.pt")) == []


def test_a_rank_that_does_not_see_the_checkpoint_is_named(toy_data, tmp_path):
    """Plain fairseq hangs: one rank waits for a checkpoint, the other for an update."""
    train(toy_data, *ONE, "--max-update", 1, "--save-dir", tmp_path / "run")
    ended = start_training(toy_data, *RUN, "--save-dir", tmp_path / "run", *user_dir(tmp_path, "blind", BLIND))
    last = tmp_path / "run" / "checkpoint_last.pt"
    assert ended.returncode != 0 and f"rank 1: {last} does not exist on this rank, but exists on rank 0" in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.slow
def test_a_rank_that_would_start_from_the_beginning_is_named(toy_data, tmp_path):
    """It finds no checkpoint_last.pt, only the model to finetune, which it would load without optimizer state."""
    train(toy_data, *ONE, "--max-update", 1, "--save-dir", tmp_path / "run")
    last, other = tmp_path / "run" / "checkpoint_last.pt", tmp_path / "pretrained.pt"
    other.write_bytes(last.read_bytes())
    ended = start_training(
        toy_data,
        *RUN,
        "--finetune-from-model",
        other,
        "--save-dir",
        tmp_path / "run",
        *user_dir(tmp_path, "unsynced", UNSYNCED),
    )
    assert (
        ended.returncode != 0
        and f"rank 1: would load {other}, but rank 0 would load {last}; all ranks need the same flags" in ended.stderr
    )
    assert "Traceback" not in ended.stderr


def arguments(**changes):
    """Arguments that fairseq's ``load_checkpoint`` passes to the trainer, recorded in one process."""
    flags = {"reset_optimizer": False, "reset_lr_scheduler": False, "optimizer_overrides": {}, "reset_meters": False}
    return {"filename": "run/checkpoint_last.pt", **flags, **changes}


@pytest.mark.parametrize(
    "second, there, message",
    [
        (
            {"filename": "a.pt", "reset_optimizer": True},
            True,
            "rank 1: would load a.pt, but rank 0 would load run/checkpoint_last.pt; all ranks need the same flags",
        ),
        (
            {"reset_optimizer": True},
            True,
            "rank 1: --reset-optimizer is True, but False on rank 0; all ranks need the same flags",
        ),
        ({"optimizer_overrides": {"lr": 1}}, True, "rank 1: --optimizer-overrides is {'lr': 1}, but {} on rank 0"),
        ({}, False, "rank 1: run/checkpoint_last.pt does not exist on this rank, but exists on rank 0"),
    ],
)
def test_processes_that_would_load_something_else(second, there, message):
    with pytest.raises(InputError) as refusal:
        refuse_other_files([(arguments(), True), (arguments(**second), there)])
    assert str(refusal.value).startswith(message)
    refuse_other_files([(arguments(**second), there)] * 2)


@pytest.mark.slow
def test_a_killed_rank_ends_the_run_which_resumes(toy_data, tmp_path):
    """160 sentences in batches of 8 on two ranks: 10 updates. Rank 1 dies in the eighth; the checkpoint of update 6 is complete."""
    flags = [*RUN, "--save-interval-updates", 3, "--keep-interval-updates", 1]
    whole = start_training(toy_data, *flags, "--save-dir", tmp_path / "whole")
    assert whole.returncode == 0, whole.stderr
    ended = start_training(toy_data, *flags, "--save-dir", tmp_path / "run", *user_dir(tmp_path, "killed", KILLED))
    assert ended.returncode != 0 and "the process of rank 1 ended with signal SIGKILL" in ended.stderr
    assert load(tmp_path / "run")["optimizer_history"][-1]["num_updates"] == 6
    resumed = start_training(toy_data, *flags, "--save-dir", tmp_path / "run")
    assert resumed.returncode == 0, resumed.stderr
    expected, found = load(tmp_path / "whole"), load(tmp_path / "run")
    assert found["optimizer_history"][-1]["num_updates"] == expected["optimizer_history"][-1]["num_updates"] == 10
    assert all(torch.equal(found["model"][name], tensor) for name, tensor in expected["model"].items())


def test_torchruns_processes_are_connected_or_refused(monkeypatch):
    for name, value in {"MASTER_ADDR": "localhost", "MASTER_PORT": "1", "WORLD_SIZE": "2", "RANK": "1"}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(InputError, match="torchrun started 2 processes"):
        refuse_lone_ranks()
    monkeypatch.setenv("WORLD_SIZE", "1")
    monkeypatch.setenv("RANK", "0")
    refuse_lone_ranks()


FREEZING = ["--reservoir-encoder LT", "--encoder-layers 3 --reservoir-count 1", "--freeze emb", "--freeze-except ln"]
ARCHS = {
    "--arch frozen_transformer --freeze att": False,
    "--arch supermask_one_layer_transformer": False,
    "--arch reservoir_transformer": True,
}


@pytest.mark.parametrize("flags", [*FREEZING, *ARCHS])
def test_sharding_is_refused_where_something_is_frozen(toy_data, tmp_path, flags):
    message, status = error_of(
        toy_data, *flags.split(), "--ddp-backend", "fully_sharded", "--save-dir", tmp_path / "run", begin=TINY
    )
    refused = "--ddp-backend fully_sharded: would train frozen tensors" in message
    assert refused != ARCHS.get(flags, False)
    if refused:
        # Status 2 is that of the command itself, see test_processes.py.
        assert status != 0 and message.count("\n") == 1 and not (tmp_path / "run").exists()

"""A run that is stopped while it saves resumes from the last checkpoint, and loses nothing else."""

import io
import re

import pytest
import torch

from tests.support.commands import error_of, load, start_training, train

# 160 sentences in batches of 16: 10 updates, a checkpoint after 4 and one after 8.
RUN = "--reservoir-encoder LF --reservoir-decoder L --batch-size 16 --max-epoch 1 --save-interval-updates 4".split()
# A --user-dir of ours that interrupts the second checkpoint in various ways.
BEGIN = """
import os, resource, shutil, signal
import fairseq_reservoir
from fairseq import checkpoint_utils
from fairseq.trainer import Trainer

def at_the_second(happens, save=Trainer.save_checkpoint):
    def save_checkpoint(self, *args, **kwargs):
        if self.get_num_updates() == 8:
            happens()
        return save(self, *args, **kwargs)
    Trainer.save_checkpoint = save_checkpoint

def half(path, data):
    with open(path, "wb") as stream:
        stream.write(data)
        stream.flush()
        os.kill(os.getpid(), signal.SIGTERM)
"""
WAYS = {
    "stopped while writing": """
def happens():
    checkpoint_utils._torch_persistent_save = lambda state, stream: half(stream.name, b"PK" + bytes(5000))
at_the_second(happens)
""",
    "stopped while copying": """
def happens(copy=shutil.copyfile):
    def copyfile(source, target):
        return half(target, open(source, "rb").read(5000)) if "checkpoint_last" in target else copy(source, target)
    shutil.copyfile = copyfile
at_the_second(happens)
""",
    # A limit on the size of files stops a write in the middle, like a full disk. Logs are smaller and checkpoints larger.
    "disk full while writing": """
def happens():
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, resource.RLIM_INFINITY))
at_the_second(happens)
""",
    "disk full while copying": """
def happens(copy=shutil.copyfile):
    def copyfile(source, target):
        resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, resource.RLIM_INFINITY))
        return copy(source, target)
    shutil.copyfile = copyfile
at_the_second(happens)
""",
}
# The file that does not fit on the disk.
FULL = {"disk full while writing": "checkpoint_1_8.pt", "disk full while copying": "checkpoint_best.pt"}


@pytest.fixture(scope="module")
def whole(toy_data, tmp_path_factory):
    """Folder of an uninterrupted run."""
    folder = tmp_path_factory.mktemp("whole")
    train(toy_data, *RUN, "--save-dir", folder)
    return folder


# By default one process stops and one disk is full, in one write and in one copy.
LONGER = ("stopped while writing", "disk full while copying")


@pytest.mark.parametrize("way", [pytest.param(w, marks=pytest.mark.slow) if w in LONGER else w for w in WAYS])
def test_the_last_checkpoint_stays(toy_data, whole, tmp_path, way):
    plugin, folder = tmp_path / "stopping", tmp_path / "run"
    plugin.mkdir()
    (plugin / "__init__.py").write_text(BEGIN + WAYS[way])
    ended = start_training(toy_data, *RUN, "--save-dir", folder, "--user-dir", plugin)
    if way in FULL:
        expected = f"error: --save-dir: {folder / FULL[way]} cannot be written (File too large); earlier checkpoints are unaffected"
        assert ended.returncode == 2 and ended.stderr.splitlines()[-1].endswith(expected), ended.stderr
        assert "Traceback" not in ended.stderr and not list(folder.glob("*.tmp"))
    else:
        assert ended.returncode == -15, ended.stderr
    assert load(folder)["optimizer_history"][-1]["num_updates"] == 4
    resumed = train(toy_data, *RUN, "--save-dir", folder)
    assert len(resumed.losses) == 6
    assert all(torch.equal(tensor, resumed.weights[name]) for name, tensor in load(whole)["model"].items())


def cut_short(data):
    return data[:5000]


def with_a_bit_flipped(data):
    """Flip a bit in a weight, which torch.load does not detect."""
    weight = torch.load(io.BytesIO(data))["model"]["encoder.layers.0.fc1.weight"]
    place = data.index(weight.numpy().tobytes())
    return data[:place] + bytes([data[place] ^ 64]) + data[place + 1 :]


@pytest.mark.parametrize(
    "damage, what",
    [(cut_short, "cut short or overwritten"), (with_a_bit_flipped, "its record data/[0-9]+ has changed since")],
)
def test_a_damaged_checkpoint_is_refused_and_the_newest_whole_one_named(toy_data, whole, tmp_path, damage, what):
    for name in ("checkpoint_1_4.pt", "checkpoint_1_8.pt", "checkpoint_last.pt"):
        (tmp_path / name).write_bytes((whole / name).read_bytes())
    last, newest = tmp_path / "checkpoint_last.pt", tmp_path / "checkpoint_1_8.pt"
    last.write_bytes(damage(last.read_bytes()))
    message, status = error_of(toy_data, *RUN, "--save-dir", tmp_path)
    how = f"{newest} is the newest intact checkpoint in this folder \\(use it with --restore-file or --path\\)"
    assert (
        re.fullmatch(
            f"fairseq-train: error: --restore-file {last}: a damaged checkpoint, {what}[^;]*; {how}\n", message
        )
        and status == 2
    )
    assert len(train(toy_data, *RUN, "--save-dir", tmp_path, "--restore-file", newest).losses) == 2

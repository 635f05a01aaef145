"""Whatever stops a run while it saves, the same command goes on from the last checkpoint and loses nothing else."""

import pytest
import torch

from tests.commands import error_of, load, start_training, train

# 160 sentences in batches of 16: 10 updates, a checkpoint after 4 and one after 8.
RUN = "--reservoir-encoder LF --reservoir-decoder L --batch-size 16 --max-epoch 1 --save-interval-updates 4".split()
# What happens to the second checkpoint, by a --user-dir that is ours and lets it happen.
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
    # A limit on the size of files stops a write midway, as a full disk does; fairseq tries it again three times.
    "disk full": """
def happens():
    checkpoint_utils.time.sleep = lambda seconds: None
    resource.setrlimit(resource.RLIMIT_FSIZE, (5000, resource.RLIM_INFINITY))
at_the_second(happens)
""",
}


@pytest.fixture(scope="module")
def whole(toy_data, tmp_path_factory):
    """The folder of a run that nothing stopped."""
    folder = tmp_path_factory.mktemp("whole")
    train(toy_data, *RUN, "--save-dir", folder)
    return folder


@pytest.mark.parametrize("way", WAYS)
def test_the_last_checkpoint_stays(toy_data, whole, tmp_path, way):
    plugin, folder = tmp_path / "stopping", tmp_path / "run"
    plugin.mkdir()
    (plugin / "__init__.py").write_text(BEGIN + WAYS[way])
    ended = start_training(toy_data, *RUN, "--save-dir", folder, "--user-dir", plugin)
    assert ended.returncode == (1 if way == "disk full" else -15), ended.stderr
    assert load(folder)["optimizer_history"][-1]["num_updates"] == 4
    resumed = train(toy_data, *RUN, "--save-dir", folder)
    assert len(resumed.losses) == 6
    assert all(torch.equal(tensor, resumed.weights[name]) for name, tensor in load(whole)["model"].items())


def test_a_checkpoint_cut_short_is_refused_and_the_newest_whole_one_named(toy_data, whole, tmp_path):
    for name in ("checkpoint_1_4.pt", "checkpoint_1_8.pt", "checkpoint_last.pt"):
        (tmp_path / name).write_bytes((whole / name).read_bytes())
    last = tmp_path / "checkpoint_last.pt"
    last.write_bytes(last.read_bytes()[:5000])
    message, status = error_of(toy_data, *RUN, "--save-dir", tmp_path)
    newest = tmp_path / "checkpoint_1_8.pt"
    expected = f"--restore-file {last}: a checkpoint that has been cut short; --restore-file {newest} goes on from the newest that is whole"
    assert (message, status) == (f"fairseq-train: error: {expected}\n", 2)
    assert len(train(toy_data, *RUN, "--save-dir", tmp_path, "--restore-file", newest).losses) == 2
    last.write_bytes(b"")
    assert error_of(toy_data, *RUN, "--save-dir", tmp_path / "new", "--restore-file", last)[1] == 2

"""Checkpoints that cannot be written: no partial file remains, and the last checkpoint is kept."""

import errno
import os
import shutil

import pytest
import torch
from fairseq import checkpoint_utils, file_io
from fairseq.file_io import PathManager

from fairseq_reservoir import files
from fairseq_reservoir.errors import InputError

STATE = {"model": torch.arange(5000.0)}
FULL = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


class FullOnce:
    """Stream that fails only at its sixth write, like a full disk on which space is freed a moment later."""

    def __init__(self, stream):
        self.stream, self.writes = stream, 0

    def write(self, data):
        self.writes += 1
        if self.writes == 6:
            raise FULL
        return self.stream.write(data)

    def flush(self):
        self.stream.flush()

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.stream.close()


def test_each_process_writes_its_own_temporary_file(monkeypatch, tmp_path):
    names = []
    monkeypatch.setattr(checkpoint_utils, "_torch_persistent_save", lambda state, stream: names.append(stream.name))
    (tmp_path / "theirs").write_text("precious")
    (tmp_path / "a.pt.tmp").symlink_to("theirs")
    checkpoint_utils.torch_persistent_save(STATE, str(tmp_path / "a.pt"))
    assert names == [str(tmp_path / f"a.pt.{os.getpid()}.tmp")] and (tmp_path / "theirs").read_text() == "precious"


@pytest.fixture
def full_once(monkeypatch):
    monkeypatch.setattr(PathManager, "open", lambda path, mode: FullOnce(open(path, mode)))


def three_tries(state, stream):
    """Like fairseq's ``_torch_persistent_save``, but without a delay between the tries."""
    for _ in range(3):
        try:
            return torch.save(state, stream)
        except OSError:
            pass


def test_fairseqs_second_try_saves_a_corrupted_checkpoint(full_once, monkeypatch, tmp_path):
    monkeypatch.setattr(checkpoint_utils, "_torch_persistent_save", three_tries)
    checkpoint_utils.torch_persistent_save.__wrapped__(STATE, str(tmp_path / "a.pt"))
    with pytest.raises(RuntimeError, match="corrupted"):
        torch.load(tmp_path / "a.pt")


def test_the_previous_checkpoint_is_kept(full_once, tmp_path):
    path = tmp_path / "a.pt"
    torch.save({"model": torch.ones(2)}, path)
    with pytest.raises(
        InputError, match=rf"^--save-dir: {path} cannot be written \(No space left on device\); earlier checkpoints"
    ):
        checkpoint_utils.torch_persistent_save(STATE, str(path))
    assert torch.load(path)["model"].equal(torch.ones(2)) and os.listdir(tmp_path) == ["a.pt"]


def test_a_system_error_is_found_below_another_error(monkeypatch, tmp_path):
    def save(state, stream):
        try:
            raise FULL
        finally:
            raise RuntimeError("unexpected pos 64 vs 0")

    monkeypatch.setattr(checkpoint_utils, "_torch_persistent_save", save)
    with pytest.raises(InputError, match="No space left on device"):
        checkpoint_utils.torch_persistent_save(STATE, str(tmp_path / "a.pt"))
    assert os.listdir(tmp_path) == []


def test_other_errors_are_raised_unchanged(tmp_path):
    with pytest.raises(AttributeError):
        checkpoint_utils.torch_persistent_save({"function": lambda: None}, str(tmp_path / "a.pt"))
    assert os.listdir(tmp_path) == []


class IOPath:
    """Like iopath's path manager, which overwrites the target in place and returns only whether this succeeded."""

    _path_handlers = {"s3://": None}

    def copy(self, src_path, dst_path, overwrite):
        return f"copied to {dst_path}"


@pytest.fixture(params=[None, IOPath()], ids=["without iopath", "with iopath"])
def iopath(request, monkeypatch):
    monkeypatch.setattr(file_io, "IOPathManager", request.param)
    return request.param


@pytest.fixture
def new_and_last(tmp_path):
    new, last = tmp_path / "checkpoint_1_2.pt", tmp_path / "checkpoint_last.pt"
    new.write_text("new")
    last.write_text("old")
    return new, last


def test_the_last_checkpoint_is_replaced_after_the_new_one_is_synced(iopath, new_and_last, monkeypatch):
    new, last = new_and_last
    synced = []
    monkeypatch.setattr(
        files, "sync", lambda path: path.is_file() and synced.append((path.read_text(), last.read_text()))
    )
    assert PathManager.copy(str(new), str(last), overwrite=True)
    assert synced == [("new", "old")] and last.read_text() == "new" and len(os.listdir(last.parent)) == 2


def test_a_failed_copy_keeps_the_last_checkpoint(iopath, new_and_last, monkeypatch):
    new, last = new_and_last

    def copy_half(source, target):
        with open(target, "w") as stream:
            stream.write("n")
        raise FULL

    monkeypatch.setattr(shutil, "copyfile", copy_half)
    with pytest.raises(InputError, match=rf"^--save-dir: {last} cannot be written \(No space left on device\)"):
        PathManager.copy(str(new), str(last), overwrite=True)
    assert last.read_text() == "old" and len(os.listdir(last.parent)) == 2


def test_iopath_copies_to_other_file_systems(new_and_last, monkeypatch):
    monkeypatch.setattr(file_io, "IOPathManager", IOPath())
    assert (
        PathManager.copy(str(new_and_last[0]), "s3://b/checkpoint_last.pt", overwrite=True)
        == "copied to s3://b/checkpoint_last.pt"
    )

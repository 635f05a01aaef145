"""A checkpoint that cannot be written: nothing of it stays, and what plain fairseq would make of it."""

import errno
import os

import pytest
import torch
from fairseq import checkpoint_utils
from fairseq.file_io import PathManager

from fairseq_reservoir.errors import InputError

STATE = {"model": torch.arange(5000.0)}
FULL = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


class FullOnce:
    """A stream whose sixth write fails, as on a disk where somebody makes room a moment later."""

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


@pytest.fixture
def full_once(monkeypatch):
    monkeypatch.setattr(PathManager, "open", lambda path, mode: FullOnce(open(path, mode)))


def three_tries(state, stream):
    """As fairseq's ``_torch_persistent_save``, without its waiting."""
    for _ in range(3):
        try:
            return torch.save(state, stream)
        except OSError:
            pass


def test_fairseqs_second_try_saves_what_nobody_can_load(full_once, monkeypatch, tmp_path):
    monkeypatch.setattr(checkpoint_utils, "_torch_persistent_save", three_tries)
    checkpoint_utils.torch_persistent_save.__wrapped__(STATE, str(tmp_path / "a.pt"))
    with pytest.raises(RuntimeError, match="corrupted"):
        torch.load(tmp_path / "a.pt")


def test_the_checkpoint_before_stays(full_once, tmp_path):
    path = tmp_path / "a.pt"
    torch.save({"model": torch.ones(2)}, path)
    with pytest.raises(InputError, match=rf"^--save-dir: {path} cannot be written \(No space left on device\); what was saved before"):
        checkpoint_utils.torch_persistent_save(STATE, str(path))
    assert torch.load(path)["model"].equal(torch.ones(2)) and os.listdir(tmp_path) == ["a.pt"]


def test_an_error_of_the_system_below_another(monkeypatch, tmp_path):
    def save(state, stream):
        try:
            raise FULL
        finally:
            raise RuntimeError("unexpected pos 64 vs 0")

    monkeypatch.setattr(checkpoint_utils, "_torch_persistent_save", save)
    with pytest.raises(InputError, match="No space left on device"):
        checkpoint_utils.torch_persistent_save(STATE, str(tmp_path / "a.pt"))
    assert os.listdir(tmp_path) == []


def test_other_errors_are_no_fault_of_the_disk(tmp_path):
    with pytest.raises(AttributeError):
        checkpoint_utils.torch_persistent_save({"function": lambda: None}, str(tmp_path / "a.pt"))
    assert os.listdir(tmp_path) == []

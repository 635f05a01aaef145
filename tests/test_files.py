"""A file is there whole or not at all."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

import fairseq_reservoir
from fairseq_reservoir.checkpoint import packed_file
from fairseq_reservoir.errors import InputError
from fairseq_reservoir.files import check_out, replacing


def test_replaces_at_the_end(tmp_path):
    out = tmp_path / "a.bin"
    out.write_text("old")
    with replacing(out) as temporary:
        temporary.write_text("new")
        assert out.read_text() == "old"
    assert out.read_text() == "new" and list(tmp_path.iterdir()) == [out]


def test_an_error_leaves_the_old_file(tmp_path):
    out = tmp_path / "a.bin"
    out.write_text("old")
    with pytest.raises(RuntimeError), replacing(out) as temporary:
        temporary.write_text("new")
        raise RuntimeError
    assert out.read_text() == "old" and list(tmp_path.iterdir()) == [out]


def test_a_full_disk_is_one_line(tmp_path):
    with pytest.raises(InputError, match="OUT .*a.bin: cannot be written .No space left on device"), replacing(tmp_path / "a.bin"):
        raise OSError(28, "No space left on device")


@pytest.mark.parametrize(
    "name, force, message",
    [
        ("a.pt", True, "the name must end in .bin"),
        ("none/a.bin", True, "is no folder that can be written to"),
        ("old.bin", False, "exists; --force replaces it"),
        ("folder.bin", True, "is a folder"),
    ],
)
def test_refusals(tmp_path, name, force, message):
    (tmp_path / "old.bin").write_text("old")
    (tmp_path / "folder.bin").mkdir()
    with pytest.raises(InputError, match=message):
        check_out(tmp_path / name, force, ".bin")
    check_out(tmp_path / "old.bin", True, ".bin")
    check_out(tmp_path / "new.bin", False, ".bin")


KILLED_WHILE_SAVING = """
import os, signal, sys
sys.modules["fairseq"] = None
import torch
from fairseq_reservoir.checkpoint import atomic_file, packed_file
def die(path):
    assert os.path.getsize(path) > 1000
    os.kill(os.getpid(), signal.SIGKILL)
atomic_file.sync = die
packed_file.write(sys.argv[1], {"new": True}, {"w": torch.ones(1000)})
"""


def test_a_process_killed_while_saving_leaves_the_old_file(tmp_path):
    out = tmp_path / "model.safetensors"
    packed_file.write(out, {"old": True}, {"w": torch.zeros(1000)})
    command = [sys.executable, "-c", KILLED_WHILE_SAVING, out]
    done = subprocess.run(command, capture_output=True, text=True, cwd=Path(fairseq_reservoir.__file__).parent.parent)
    assert done.returncode == -9, done.stderr
    body, tensors = packed_file.read(out)
    assert body["old"] and tensors["w"].equal(torch.zeros(1000))
    packed_file.write(out, {"new": True}, {"w": torch.ones(1000)})
    assert packed_file.read(out)[0]["new"]

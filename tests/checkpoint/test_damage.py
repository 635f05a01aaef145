"""Corrupted checkpoints, and files that are not corrupted."""

import os
import re
from argparse import Namespace

import pytest
import torch

from fairseq_reservoir.checkpoint.damage import reading, refuse_damaged
from fairseq_reservoir.checkpoint.meta_checkpoint import read_state
from fairseq_reservoir.errors import InputError
from fairseq_reservoir.fairseq_repairs import archive


@pytest.fixture
def path(tmp_path):
    torch.save({"model": {"a": torch.arange(3000.0), "b": torch.arange(3000.0)}}, tmp_path / "checkpoint_last.pt")
    return tmp_path / "checkpoint_last.pt"


def flip(path, position):
    data = bytearray(path.read_bytes())
    data[position] ^= 64
    path.write_bytes(data)


def test_torch_loads_a_flipped_bit_and_this_plugin_does_not(path):
    position = path.read_bytes().index(torch.tensor([1000.0, 1001.0]).numpy().tobytes()) + 3
    flip(path, position)
    # 1000 is 0x447A0000. Without bit 62 of the pair it is 0x047A0000, almost 0.
    assert 0 < torch.load(path)["model"]["a"][1000] < 1e-30
    with pytest.raises(
        InputError,
        match=f"^{path}: a damaged checkpoint, its record data/0 has changed since it was written; "
        "no other checkpoint in this folder is intact$",
    ):
        refuse_damaged(path)
    with pytest.raises(InputError, match="a damaged checkpoint, its record data/0"):
        read_state(str(path))


@pytest.mark.parametrize("part", range(4))
def test_damage_anywhere_is_refused_or_harmless(path, part):
    """Change every sixth byte of both ends, which describe the archive, and some bytes between. Padding is never read."""
    whole = path.read_bytes()
    expected, size = torch.load(path)["model"], len(whole)
    positions = [*range(0, 600, 6), *range(600, size - 900, 600), *range(size - 900, size, 6)]
    for i, position in enumerate(positions[part::4]):
        path.write_bytes(whole)
        flip(path, position)
        os.utime(path, ns=(i, i))
        try:
            with reading(path):
                found = torch.load(path)["model"]
        except InputError:
            continue
        assert all(found[name].equal(tensor) for name, tensor in expected.items())


def test_the_newest_intact_one_is_named(path):
    for i, name in enumerate(("checkpoint1.pt", "checkpoint2.pt", "checkpoint3.pt", "other.pt")):
        (path.parent / name).write_bytes(path.read_bytes())
        os.utime(path.parent / name, ns=(i, i))
    (path.parent / "checkpoint3.pt").write_bytes(b"PK")
    path.write_bytes(b"")
    expected = re.escape(
        f"--restore-file {path}: a damaged checkpoint, cut short or overwritten; {path.parent}/checkpoint2.pt is the newest"
    )
    with pytest.raises(InputError, match=expected):
        refuse_damaged(path, "--restore-file ")


def test_other_files_beside_it(path):
    (path.parent / "checkpoint_gone.pt").symlink_to(path.parent / "nowhere")
    (path.parent / "checkpoint_folder.pt").mkdir()
    path.write_bytes(b"PK")
    with pytest.raises(InputError, match=": a damaged checkpoint, .*; no other checkpoint in this folder is intact"):
        refuse_damaged(path)


def test_intact_files(path):
    torch.save({"a": torch.ones(3)}, path, _use_new_zipfile_serialization=False)
    refuse_damaged(path)
    torch.serialization.set_crc32_options(False)
    try:
        torch.save({"a": torch.ones(3)}, path)
    finally:
        torch.serialization.set_crc32_options(True)
    refuse_damaged(path)
    path.unlink()
    refuse_damaged(path)


@pytest.mark.parametrize("how", ["before 1.6", "no checksums", "checksums", "sealed"])
def test_a_checkpoint_without_checksums_is_loaded_with_one_warning(tmp_path, how, caplog):
    """CRC-32 or the seal detect a changed tensor. Without both the file is loaded with one warning."""
    path, tensor = tmp_path / "old.pt", torch.arange(3000.0)
    state = {"model": {"a": tensor}, "cfg": Namespace(model=None)}
    torch.serialization.set_crc32_options(how != "no checksums")
    try:
        if how == "sealed":
            with open(path, "wb") as stream:
                archive.save(state, stream)
        else:
            torch.save(state, path, _use_new_zipfile_serialization=how != "before 1.6")
    finally:
        torch.serialization.set_crc32_options(True)
    verified = how in ("checksums", "sealed")
    for _ in range(2):
        refuse_damaged(path)
    reasons = {
        "before 1.6": "torch's format before version 1.6 has no checksums",
        "no checksums": "it was written without checksums",
    }
    line = f"{path}: cannot be checked for damage, because {reasons.get(how)}; compare the file with its source"
    assert caplog.messages == ([] if verified else [line])
    flip(path, path.read_bytes().index(tensor.numpy().tobytes()) + 4 * 1000 + 3)
    if verified:
        with pytest.raises(InputError, match="a damaged checkpoint"):
            refuse_damaged(path)
    else:
        refuse_damaged(path)
        assert 0 < torch.load(path)["model"]["a"][1000] < 1e-30


def test_other_files_have_no_warning(tmp_path, caplog):
    for name, text in (("a.txt", b"words"), ("b.pt", b"not a pickle"), ("c.safetensors", b"\x80\0\0\0\0\0\0\0{}")):
        (tmp_path / name).write_bytes(text)
        refuse_damaged(tmp_path / name)
    assert caplog.messages == []


def test_an_export_that_begins_like_an_archive(tmp_path):
    """Its first eight bytes are the length of its header, which are "PK" and zeros for 19,280 bytes."""
    export = tmp_path / "model.safetensors"
    export.write_bytes((19_280).to_bytes(8, "little") + b"{}".ljust(19_280))
    assert export.read_bytes()[:2] == b"PK"
    refuse_damaged(export)

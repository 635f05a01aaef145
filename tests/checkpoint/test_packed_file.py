"""The file of an export: reading returns the written content, or refuses the file."""

import hashlib
import json
import random
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from fairseq_reservoir.checkpoint import export_file, packed_file, read_state_dict
from fairseq_reservoir.errors import InputError

BODY = {"masks": {}, "seed": 3, "note": 'quotes " and ümlauts', "scale": 2**0.5}
TENSORS = {"b": torch.arange(5), "a": torch.linspace(-1, 1, 12).reshape(3, 4), "h": torch.ones(2, dtype=torch.bfloat16)}
# hash of usual_configuration.json: all compact exports need exactly this text
USUAL_TEXT = "91149d48f4b491c50d54c9c6531f50d61a3e017b5dadc4775fc0a58a90c09ace"
TENSORS["long"] = torch.linspace(-1, 1, 3000).to(torch.bfloat16)


COMPACT = pytest.mark.skipif(
    not find_spec("constriction"), reason="constriction is not installed: pip install constriction"
)


@pytest.fixture(params=[False, pytest.param(True, marks=COMPACT)], ids=["plain", "compact"])
def compact(request):
    return request.param


@pytest.fixture
def path(tmp_path, compact):
    packed_file.write(tmp_path / "a.safetensors", BODY, TENSORS, compact)
    return tmp_path / "a.safetensors"


def test_round_trip(path, compact):
    body, tensors = packed_file.read(path)
    assert body == {"version": 1 + compact, **BODY}
    described = export_file.read_body(path)
    coded = described.pop("coded", {})
    assert described == body and [name for name in coded if "planes" in coded[name]] == ["long"] * compact
    assert tensors.keys() == TENSORS.keys()
    assert all(tensors[name].equal(t) and tensors[name].dtype == t.dtype for name, t in TENSORS.items())


def test_the_same_bytes_again(path, tmp_path, compact):
    packed_file.write(tmp_path / "b.safetensors", BODY, dict(reversed(TENSORS.items())), compact)
    assert (tmp_path / "b.safetensors").read_bytes() == path.read_bytes()


def test_any_changed_byte_is_detected(path):
    content, draw = path.read_bytes(), random.Random(1)
    for position in {*range(16), *draw.sample(range(len(content)), 400), len(content) - 1}:
        changed = bytearray(content)
        changed[position] ^= 1 << draw.randrange(8)
        path.write_bytes(changed)
        with pytest.raises(InputError) as refusal:
            packed_file.read(path)
        assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("size", [0, 1, 8, 100, -1])
def test_truncated(path, size):
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(InputError, match="a.safetensors: truncated, altered or not a safetensors file"):
        packed_file.read(path)


def test_foreign(tmp_path):
    path = tmp_path / "a.safetensors"
    with pytest.raises(InputError, match="a.safetensors: no such file"):
        packed_file.read(path)
    path.write_text("no safetensors file")
    with pytest.raises(InputError, match="truncated, altered or not a safetensors file"):
        packed_file.read(path)
    for metadata in (None, {"format": "pt"}, {"fairseq_reservoir": "{"}, {"fairseq_reservoir": "[]"}):
        save_file(TENSORS, path, metadata=metadata)
        with pytest.raises(InputError, match="is a safetensors file, but not an export of fairseq-reservoir"):
            packed_file.read(path)


def test_a_checkpoint_must_be_exported_first(tmp_path):
    path = tmp_path / "checkpoint_best.pt"
    torch.save({}, path)
    told = f"{path}: is a checkpoint of fairseq; export it first with fairseq-reservoir export {path} OUT.safetensors"
    for read in (packed_file.read, read_state_dict):
        with pytest.raises(InputError) as refusal:
            read(path)
        assert str(refusal.value) == told


def test_a_newer_version(tmp_path, monkeypatch):
    monkeypatch.setattr(packed_file, "read", lambda path: None)
    packed_file.write(tmp_path / "a.safetensors", {"version": 5}, TENSORS)
    monkeypatch.undo()
    with pytest.raises(InputError, match="is an export of version 5, but this fairseq_reservoir reads versions 1 to 4"):
        packed_file.read(tmp_path / "a.safetensors")


@COMPACT
def test_a_usual_configuration_costs_little(tmp_path, monkeypatch):
    config = json.loads((Path(packed_file.__file__).parent / "usual_configuration.json").read_text())
    config["optimization"]["max_update"] = 1234
    before = random.Random(1).randbytes(40_000).hex()  # sorts before "config", and is longer than the window of deflate
    described = {**BODY, "a": before, "config": config}
    paths = [tmp_path / "whole.safetensors", tmp_path / "known.safetensors"]
    monkeypatch.setattr(export_file, "usual", bytes)  # as the first compact exports were written
    packed_file.write(paths[0], described, TENSORS, compact=True)
    monkeypatch.undo()
    packed_file.write(paths[1], described, TENSORS, compact=True)
    bodies = [packed_file.read(path)[0] for path in paths]
    assert bodies[0] == bodies[1] and bodies[0]["config"] == config
    whole, known = (path.stat().st_size for path in paths)
    assert whole - known > 2500


def test_the_usual_configuration_never_changes():
    assert hashlib.sha256(export_file.usual()).hexdigest() == USUAL_TEXT


def test_a_file_that_reads_back_different_is_not_kept(path, monkeypatch, compact):
    old = path.read_bytes()

    def save_other(tensors, filename, metadata):
        name = "tensors" if compact else "b"
        save_file({**tensors, name: tensors[name] + 1}, filename, metadata)

    monkeypatch.setattr(packed_file, "save_file", save_other)
    with pytest.raises(InputError, match="altered"):
        packed_file.write(path, BODY, TENSORS, compact)
    assert path.read_bytes() == old and list(path.parent.iterdir()) == [path]

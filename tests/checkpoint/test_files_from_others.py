"""Untrusted files: no code in them runs, nothing of this machine leaks, and refusals are one line."""

import builtins
import json
import os
import pickle
import re
import zlib
from argparse import Namespace

import pytest
import torch
from fairseq import checkpoint_utils

from fairseq_reservoir.checkpoint import export_file, packed_file, read_state_dict, reader
from fairseq_reservoir.checkpoint.export import export
from fairseq_reservoir.checkpoint.materialize import materialize
from fairseq_reservoir.checkpoint.meta_checkpoint import read_state
from fairseq_reservoir.commands import dump_embeddings
from fairseq_reservoir.errors import InputError
from fairseq_reservoir.fairseq_repairs import checkpoints
from fairseq_reservoir.fairseq_repairs.error_report import find_input_error
from tests.support.commands import error_of

PLANS = ["--reservoir-encoder", "LTFGC", "--reservoir-decoder", "LTFC"]


class Runs:
    """Pickles as a call that creates a file."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.system, (f"touch {self.path}",)


@pytest.fixture
def with_a_program(every_kind, tmp_path, monkeypatch):
    """A checkpoint that creates a file when unpickled, and the environment that lets plain fairseq do it."""
    monkeypatch.setenv("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "1")
    path = tmp_path / "bad.pt"
    torch.save(torch.load(every_kind.path) | {"extra": Runs(tmp_path / "ran")}, path)
    yield path
    assert not (tmp_path / "ran").exists()


REASON = (
    "bad.pt: not loaded: the file refers to posix.system, which does not belong in a checkpoint and could run any program "
    "(see docs/files-from-others.md)"
)


def test_plain_fairseq_runs_it(with_a_program, tmp_path):
    torch.serialization.load(with_a_program)
    (tmp_path / "ran").unlink()
    with pytest.raises(pickle.UnpicklingError):
        torch.load(with_a_program)
    assert torch.load(with_a_program, weights_only=False)["extra"] == 0  # the user may allow it
    (tmp_path / "ran").unlink()


@pytest.mark.parametrize("flag", ["--restore-file", "--finetune-from-model"])
def test_training_refuses_in_one_line(toy_data, with_a_program, tmp_path, flag):
    message, status = error_of(toy_data, *PLANS, flag, with_a_program, "--save-dir", tmp_path / "run")
    assert (
        message.count("\n") == 1
        and message.startswith("fairseq-train: error: ")
        and message.endswith(f"{REASON}\n")
        and status == 2
    )


def test_generating_and_the_commands_refuse(translate, with_a_program):
    with pytest.raises(Exception) as refusal:
        translate(with_a_program)
    assert str(find_input_error(refusal.value)).endswith(REASON)
    with pytest.raises(InputError, match=re.escape(f"CHECKPOINT {with_a_program.parent}/{REASON}")):
        read_state(with_a_program)


def test_repairing_twice_changes_nothing():
    before = torch.load
    checkpoints.load_no_programs()
    assert torch.load is before


class Evaluates:
    def __reduce__(self):
        return builtins.eval, ("1",)


@pytest.mark.parametrize(
    "what",
    [Evaluates(), {"model": {}}, [1], {"model": {}, "optimizer_history": []}],
    ids=["a program", "no configuration", "a list", "no weights"],
)
def test_other_files_are_one_line(what, tmp_path):
    torch.save(what, tmp_path / "a.pt")
    with pytest.raises(InputError, match=rf"^{tmp_path}/a.pt: not (loaded|a checkpoint of fairseq)") as refusal:
        checkpoint_utils.load_checkpoint_to_cpu(str(tmp_path / "a.pt"))
    assert "\n" not in str(refusal.value) and len(str(refusal.value)) < 300


@pytest.fixture(scope="module")
def exported(every_kind, tmp_path_factory):
    """``body`` and ``tensors`` of an export."""
    out = tmp_path_factory.mktemp("exports") / "model.safetensors"
    export(every_kind.path, out)
    return packed_file.read(out)


def rewritten(path, exported, change):
    """Write a malicious export with a right hash."""
    body, tensors = json.loads(json.dumps(exported[0])), dict(exported[1])
    change(body, tensors)
    packed_file.write(path, body, tensors)
    return path


def looks_up(config):
    config["task"]["source_lang"] = "${oc.env:SECRET}"


def test_interpolations_of_an_export_are_refused(exported, tmp_path, monkeypatch):
    monkeypatch.setenv("SECRET", "hunter2")
    path = rewritten(tmp_path / "a.safetensors", exported, lambda body, _: looks_up(body["config"]))
    expected = r"a.safetensors: source_lang in its configuration is \$\{oc.env:SECRET\}; \$\{...\} is not allowed"
    with pytest.raises(InputError, match=expected):
        materialize(str(path), str(tmp_path / "plain.pt"))
    known = Namespace(checkpoint=str(path), prefix=str(tmp_path / "words"), data=None, force=False)
    with pytest.raises(InputError, match=expected):
        dump_embeddings.run(known, [])
    assert os.listdir(tmp_path) == ["a.safetensors"]


@pytest.mark.parametrize("place", ["cfg", "args"])
def test_interpolations_of_a_checkpoint_are_refused(every_kind, tmp_path, monkeypatch, place):
    monkeypatch.setenv("SECRET", "hunter2")
    state = torch.load(every_kind.path)
    if place == "cfg":
        looks_up(state["cfg"])
    else:
        flat = (
            {**vars(state["cfg"]["model"])}
            if isinstance(state["cfg"]["model"], Namespace)
            else dict(state["cfg"]["model"])
        )
        state |= {
            "cfg": None,
            "args": Namespace(**flat, arch=flat["_name"], task="translation", source_lang="${oc.env:SECRET}"),
        }
    torch.save(state, tmp_path / "a.pt")
    with pytest.raises(InputError, match=r"source_lang in its configuration is \$\{oc.env:SECRET\}"):
        read_state(str(tmp_path / "a.pt"))


def of_random(**fields):
    return lambda body, tensors: next(iter(body["random"].values())).update(fields)


def of_drawn(**fields):
    def change(body, tensors):
        next(entry for name, entry in body["random"].items() if name not in tensors).update(fields)

    return change


def of_stored(**fields):
    def change(body, tensors):
        next(entry for name, entry in body["random"].items() if name in tensors).update(fields)

    return change


def with_mask(**fields):
    """Return a change that adds a mask of 64 entries in 8 bytes."""

    def change(body, tensors):
        tensors["scores"] = torch.zeros(8, dtype=torch.uint8)
        body["masks"]["scores"] = {"shape": [8, 8], "bits": 1, "lowest": 0} | fields

    return change


HOSTILE = {
    "blocks: 1e9": (of_random(blocks=1e9), r"\d+ rows cannot be split into 1000000000.0 blocks"),
    "blocks: 10**9": (of_random(blocks=10**9), r"\d+ rows cannot be split into 1000000000 blocks"),
    "no blocks": (of_random(blocks=0), "into 0 blocks"),
    "a huge random tensor": (of_drawn(shape=[60_000, 60_000]), r"\[60000, 60000\], the file would need more than 2,147,483,648 random"),
    "another shape than stored": (of_stored(shape=[60_000, 60_000]), r"but the stored tensor has \["),
    "half a row": (of_random(shape=[0.5, 2]), r"shape \[0.5, 2\]"),
    "less than nothing": (of_random(shape=[-4, -4]), r"shape \[-4, -4\]"),
    "a huge mask": (with_mask(shape=[60_000, 60_000]), r"shape \[60000, 60000\] does not fit 8 bytes"),
    "a mask of many bits": (with_mask(bits=10**9), "it does not describe a mask"),
    "a mask of words": (with_mask(shape="ab"), "it does not describe a mask"),
    "a mask of nothing": (
        lambda body, _: body["masks"].update(nothing={"shape": [8], "bits": 1, "lowest": 0}), "it does not describe a mask"),
}  # fmt: skip


@pytest.mark.parametrize("what", HOSTILE)
def test_sizes_are_checked_before_decoding(what, exported, tmp_path, monkeypatch):
    change, expected = HOSTILE[what]
    path = rewritten(tmp_path / "a.safetensors", exported, change)
    monkeypatch.setattr(reader, "_draw", None)
    monkeypatch.setattr(reader.bits, "unpack_array", None)
    with pytest.raises(InputError, match=f"^{path}: the description of .* is not usable, because .*{expected}"):
        read_state_dict(path)
    with pytest.raises(InputError, match=expected):
        checkpoint_utils.load_checkpoint_to_cpu(str(path))


@pytest.mark.parametrize("key", ["random", "masks", "tied", "config", "generator", "num_updates"])
def test_missing_keys_are_one_line(key, exported, tmp_path):
    path = rewritten(tmp_path / "a.safetensors", exported, lambda body, _: body.pop(key))
    with pytest.raises(InputError, match=rf"^{path}: not a checkpoint of fairseq \(KeyError: '{key}'\)$"):
        checkpoint_utils.load_checkpoint_to_cpu(str(path))


def nested(depth):
    found = {}
    for _ in range(depth):
        found = {"a": found}
    return found


@pytest.mark.parametrize("depth", [300, 900])
def test_deep_configurations_are_one_line(depth, exported, tmp_path):
    path = rewritten(tmp_path / "a.safetensors", exported, lambda body, _: body.update(config=nested(depth)))
    with pytest.raises(InputError) as refusal:
        read_state(str(path))
    assert str(refusal.value).startswith(f"CHECKPOINT {path}: ") and "\n" not in str(refusal.value)


def test_json_deeper_than_python_reads(exported, tmp_path, monkeypatch):
    """Written by hand, because json cannot write it either."""
    deep = '{"version": 1, "a": ' + "[" * 100_000 + "]" * 100_000 + "}"
    with monkeypatch.context() as patch:
        patch.setattr(packed_file, "deflated", lambda body: zlib.compress(deep.encode()))
        patch.setattr(packed_file, "read", lambda path: None)
        packed_file.write(tmp_path / "a.safetensors", exported[0], exported[1])
    for read in (packed_file.read, export_file.read_body, read_state_dict):
        with pytest.raises(
            InputError, match="a.safetensors: is a safetensors file, but not an export of fairseq-reservoir"
        ):
            read(tmp_path / "a.safetensors")


def test_an_export_without_masks_named_to_start_from(toy_data, exported, tmp_path):
    path = rewritten(tmp_path / "a.safetensors", exported, lambda body, _: body.pop("masks"))
    message, status = error_of(toy_data, *PLANS, "--finetune-from-model", path, "--save-dir", tmp_path / "run")
    assert (
        message
        == f"fairseq-train: error: --finetune-from-model {path}: not a checkpoint of fairseq (KeyError: 'masks')\n"
        and status == 2
    )

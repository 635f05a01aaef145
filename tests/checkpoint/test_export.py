"""Exports restore the checkpoint bit for bit, have the predicted size, and refuse wrong input in one line."""

import copy
import importlib.util
import json
import re
import sys

import pytest
import torch

from fairseq_reservoir import cli
from fairseq_reservoir.checkpoint import export_file, load_translator, packed_file, read_state_dict, reader
from fairseq_reservoir.checkpoint.export import export
from fairseq_reservoir.checkpoint.meta_checkpoint import open_checkpoint
from fairseq_reservoir.checkpoint.stored import from_torch
from fairseq_reservoir.errors import InputError
from fairseq_reservoir.plan import written_table
from fairseq_reservoir.random_tensors import initialisers
from fairseq_reservoir.random_tensors.recipe import OF_ANY_SHAPE, Recipe
from tests.support.commands import train
from tests.support.letters import WITH_RESERVOIRS
from tests.support.warm_start import be_code, run_function

# An untrained model generates words until the maximum length, 200 in fairseq.
SHORT = {"max_len_b": 10}


def equal(state, expected):
    return state.keys() == expected.keys() and all(
        state[name].dtype == tensor.dtype and state[name].equal(tensor) for name, tensor in expected.items()
    )


def exported(checkpoint, tmp_path, *flags):
    out = tmp_path / "model.safetensors"
    cli.main(["export", str(checkpoint.path), str(out), *flags])
    return out


@pytest.mark.parametrize(
    "name, flags",
    [
        ("every_kind", []),
        ("every_kind", ["--with-weights"]),
        ("every_kind", ["--regenerate"]),
        ("of_l_and_t", []),
        pytest.param("of_l_and_t", ["--with-weights"], marks=pytest.mark.slow),
        pytest.param("of_l_and_t", ["--regenerate"], marks=pytest.mark.slow),
    ],
)
def test_the_state_dict_comes_back_bit_for_bit(request, tmp_path, name, flags):
    checkpoint = request.getfixturevalue(name)
    out = exported(checkpoint, tmp_path, *flags)
    assert equal(read_state_dict(out), checkpoint.tensors)
    ledger = open_checkpoint(checkpoint.path).ledger
    predicted = ledger.export_bytes(with_weights="--with-weights" in flags, regenerate="--regenerate" in flags)
    assert 0 < out.stat().st_size - predicted <= 64 * 1024


def test_random_tensors_are_left_out(every_kind, tmp_path, capsys):
    body, tensors = packed_file.read(exported(every_kind, tmp_path, "--verbose"))
    left_out = {name for name in body["random"] if name not in tensors}
    assert all(body["random"][name]["initialiser"] in {"ones", "zero", "bias_uniform"} for name in left_out)
    assert {body["random"][name]["initialiser"] for name in body["random"].keys() & tensors} == {"orthogonal"}
    table = open_checkpoint(every_kind.path).model.slot_table
    assert body["random"].keys() == {e.name for e in table.entries if e.random_name}
    assert (
        f"stores {len(body['random']) - len(left_out)} of {len(body['random'])} random tensors"
        in capsys.readouterr().out
    )
    assert written_table.from_json(body["slot_table"]) == table
    assert (body["seed"], body["num_updates"], body["config"]["model"]["reservoir_encoder"]) == (
        3,
        20,
        WITH_RESERVOIRS["encoder"],
    )


@pytest.mark.parametrize("dtype, kind", [("fp16", torch.float16), ("bf16", torch.bfloat16)])
def test_dtype_applies_to_tensors_that_are_not_random(every_kind, tmp_path, dtype, kind):
    out = exported(every_kind, tmp_path, "--dtype", dtype)
    random = export_file.read_body(out)["random"]
    state, parameters = (
        read_state_dict(out),
        {e.name for e in open_checkpoint(every_kind.path).model.slot_table.entries},
    )
    for name, tensor in every_kind.tensors.items():
        rounded = name in parameters - random.keys() or name == "decoder.output_projection.weight"
        assert state[name].equal(tensor.to(kind).float() if rounded else tensor), name
    predicted = open_checkpoint(every_kind.path).ledger.export_bytes(dtype)
    assert 0 < out.stat().st_size - predicted <= 64 * 1024


def test_tied_embeddings_are_stored_once(of_l_and_t, tmp_path):
    body, tensors = packed_file.read(exported(of_l_and_t, tmp_path))
    assert body["tied"] == {"decoder.output_projection.weight": "decoder.embed_tokens.weight"}
    assert "decoder.output_projection.weight" not in tensors


@pytest.mark.parametrize("flags", [["--bf16"], ["--fp16", "--fp16-no-flatten-grads"]], ids=" ".join)
def test_half_precision_checkpoints_draw_and_round(toy_data, tmp_path, flags):
    train(
        toy_data,
        "--reservoir-encoder",
        "LT",
        "--decoder-layers",
        1,
        "--max-update",
        1,
        "--disable-validation",
        "--save-dir",
        tmp_path,
        "--no-epoch-checkpoints",
        *flags,
    )
    path = tmp_path / "checkpoint_last.pt"
    export(path, tmp_path / "a.safetensors", regenerate=True)
    body, tensors = packed_file.read(tmp_path / "a.safetensors")
    assert (
        not body["random"].keys() & tensors and body["random"]["encoder.layers.1.fc1.weight"]["rounded"] == flags[0][2:]
    )
    assert equal(read_state_dict(tmp_path / "a.safetensors"), torch.load(path)["model"])


@pytest.mark.parametrize("kind", [torch.float16, pytest.param(torch.bfloat16, marks=pytest.mark.slow)])
def test_a_checkpoint_that_was_saved_again_in_half_precision(every_kind, tmp_path, kind):
    state = copy.deepcopy(every_kind.state)
    state["model"] = {n: t.to(kind) if t.is_floating_point() else t for n, t in state["model"].items()}
    torch.save(state | {"cfg": torch.load(every_kind.path)["cfg"]}, tmp_path / "half.pt")
    written = export(tmp_path / "half.pt", tmp_path / "a.safetensors")
    assert equal(
        read_state_dict(tmp_path / "a.safetensors"),
        {n: t.float() if t.is_floating_point() else t for n, t in state["model"].items()},
    )
    assert written.drawn_again > 5


def test_a_changed_random_tensor_is_stored(of_l_and_t, tmp_path):
    state = copy.deepcopy(of_l_and_t.state)
    state["model"]["encoder.layers.1.fc1.bias"] += 1
    torch.save(state | {"cfg": torch.load(of_l_and_t.path)["cfg"]}, tmp_path / "other.pt")
    export(tmp_path / "other.pt", tmp_path / "a.safetensors")
    assert equal(read_state_dict(tmp_path / "a.safetensors"), state["model"])


READ_WITHOUT_FAIRSEQ = """
import sys
sys.modules["fairseq"] = sys.modules["omegaconf"] = sys.modules["hydra"] = None
from fairseq_reservoir.checkpoint import read_state_dict
from fairseq_reservoir.random_tensors import digest
print({{name: digest.of_tensor(tensor) for name, tensor in read_state_dict({path!r}).items()}})
"""


def test_reading_needs_no_fairseq_and_no_pickle(every_kind, tmp_path):
    from fairseq_reservoir.random_tensors import digest

    out = exported(every_kind, tmp_path, "--regenerate")
    done = run_function(be_code, READ_WITHOUT_FAIRSEQ.format(path=str(out)))
    assert done.returncode == 0, done.stderr
    assert eval(done.stdout) == {name: digest.of_tensor(tensor) for name, tensor in every_kind.tensors.items()}


@pytest.mark.parametrize(
    "flags, message",
    [
        (["{}/none.pt", "{}/a.safetensors"], "CHECKPOINT {}/none.pt: no such file"),
        (["{}/foreign.pt", "{}/a.safetensors"], "CHECKPOINT {}/foreign.pt: not a checkpoint of fairseq"),
        (["{}/text.pt", "{}/a.safetensors"], "CHECKPOINT {}/text.pt: not a checkpoint of fairseq"),
        (["{}/cut.pt", "{}/a.safetensors"], "{}/cut.pt: a damaged checkpoint, cut short or overwritten"),
        (["{}/good.pt", "{}/a.pt"], "OUT {}/a.pt: the name must end in .safetensors"),
        (["{}/good.pt", "{}/old.safetensors"], "OUT {}/old.safetensors: exists; --force replaces it"),
        (["{}/good.pt", "{}/a.safetensors", "--dtype", "fp8"], "--dtype fp8: choose from fp32, fp16, bf16"),
        (
            ["{}/good.pt", "{}/a.safetensors", "--with-weights", "--regenerate"],
            "--with-weights --regenerate: --with-weights stores all",
        ),
        (["{}/good.pt", "{}/a.safetensors", "--data", "{}/none"], "--data {}/none: does not contain the dictionaries"),
        (["{}/good.pt", "{}/a.safetensors", "--data", "{}"], "--data {}: does not contain the dictionaries"),
        (
            ["{}/huge.pt", "{}/a.safetensors", "--dtype", "fp16"],
            "--dtype fp16: encoder.embed_tokens.weight has entries up to 1e+06",
        ),
        (
            ["{}/other.pt", "{}/a.safetensors"],
            "CHECKPOINT {}/other.pt: encoder.layers.0.fc1.bias has shape None, but its model needs (24,)",
        ),
        (
            ["{}/changed.pt", "{}/a.safetensors", "--regenerate"],
            "--regenerate: encoder.layers.1.fc1.weight, drawn on this",
        ),
    ],
)
def test_refusals(every_kind, tmp_path, flags, message):
    state = torch.load(every_kind.path)
    (tmp_path / "good.pt").symlink_to(every_kind.path)
    (tmp_path / "text.pt").write_text("text")
    (tmp_path / "cut.pt").write_bytes(every_kind.path.read_bytes()[:-1000])
    (tmp_path / "old.safetensors").write_text("old")
    torch.save({"weights": torch.ones(1)}, tmp_path / "foreign.pt")
    for name, changes in {
        "huge": {"encoder.embed_tokens.weight": torch.full((12, 16), 1e6)},
        "changed": {"encoder.layers.1.fc1.weight": torch.ones(24, 16)},
    }.items():
        torch.save(state | {"model": state["model"] | changes}, tmp_path / f"{name}.pt")
    del state["model"]["encoder.layers.0.fc1.bias"]
    torch.save(state, tmp_path / "other.pt")
    with pytest.raises(SystemExit) as leaving:
        cli.main(["export", *(flag.format(tmp_path) for flag in flags)])
    text = str(leaving.value)
    assert text.startswith(f"fairseq-reservoir: error: {message.format(tmp_path)}") and "\n" not in text
    assert not (tmp_path / "a.safetensors").exists() and (tmp_path / "old.safetensors").read_text() == "old"


def test_plain_fairseq_models_are_refused(toy_data, tmp_path):
    train(
        toy_data,
        "--arch",
        "transformer",
        "--encoder-layers",
        1,
        "--decoder-layers",
        1,
        "--max-update",
        1,
        "--disable-validation",
        "--no-epoch-checkpoints",
        "--save-dir",
        tmp_path,
    )
    with pytest.raises(ValueError, match="transformer is not a model of this plugin, so it has no random tensors"):
        export(tmp_path / "checkpoint_last.pt", tmp_path / "a.safetensors")


def test_force_replaces(of_l_and_t, tmp_path):
    (tmp_path / "model.safetensors").write_text("old")
    assert equal(read_state_dict(exported(of_l_and_t, tmp_path, "--force")), of_l_and_t.tensors)


def test_a_machine_that_draws_other_bits_refuses(of_l_and_t, tmp_path, monkeypatch):
    out = exported(of_l_and_t, tmp_path, "--regenerate")
    other = lambda seed, name, shape: initialisers.orthogonal(seed, name, shape) * (1 + 1e-6)  # noqa: E731
    monkeypatch.setitem(sys.modules["fairseq_reservoir.random_tensors.recipe"].INITIALISERS, "orthogonal", other)
    with pytest.raises(
        ValueError,
        match=r"\.weight, drawn on this machine, differs from the training tensor .* without --regenerate",
    ):
        read_state_dict(out)


def test_another_generator_is_refused(of_l_and_t, tmp_path):
    body, tensors = packed_file.read(exported(of_l_and_t, tmp_path))
    packed_file.write(tmp_path / "b.safetensors", body | {"generator": "dice"}, tensors)
    with pytest.raises(
        ValueError, match="random tensors need the generator dice, but this fairseq_reservoir has philox"
    ):
        read_state_dict(tmp_path / "b.safetensors")


def test_the_metadata_shows_seed_and_generator(of_l_and_t, tmp_path):
    content = exported(of_l_and_t, tmp_path).read_bytes()
    header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
    assert list(header["__metadata__"]) == ["fairseq_reservoir"]
    shown = json.loads(header["__metadata__"]["fairseq_reservoir"])
    assert (shown["version"], shown["seed"], shown["generator"]) == (1, 3, "philox4x64-10/sha256/v1")


@pytest.mark.parametrize(
    "flags",
    [
        pytest.param(["--reservoir-encoder", "12T", "--reservoir-decoder", "6T"], marks=pytest.mark.slow),
        ["--arch", "supermask_one_layer_transformer", "--encoder-layers", "12", "--decoder-layers", "12"],
    ],
    ids=["reservoirs", "the paper's deep model"],
)
def test_the_description_of_deep_models_fits_64_kib(toy_data, tmp_path, flags):
    train(toy_data, *flags, "--max-update", 1, "--save-dir", tmp_path, "--no-epoch-checkpoints", "--disable-validation")
    written = export(tmp_path / "checkpoint_last.pt", tmp_path / "a.safetensors")
    assert 0 < written.bytes - written.predicted_bytes <= 64 * 1024


def test_load_translator_takes_relative_paths(every_kind, tmp_path, toy_data, monkeypatch):
    """Paths are relative to the current folder, not to the model's, which has another "data". A name may have a colon."""
    (tmp_path / "models" / "data").mkdir(parents=True)
    (tmp_path / "data").symlink_to(toy_data)
    exported(every_kind, tmp_path).rename(tmp_path / "models" / "a:b.safetensors")
    monkeypatch.chdir(tmp_path)
    expected = load_translator(every_kind.path, toy_data).translate(["a b c", "h g"], **SHORT)
    for data in ("data", "models/../data"):
        assert load_translator("models/a:b.safetensors", data).translate(["a b c", "h g"], **SHORT) == expected
    monkeypatch.chdir(tmp_path / "models")
    assert load_translator("./a:b.safetensors", "../data").translate(["a b c", "h g"], **SHORT) == expected


def test_load_translator_names_missing_files(every_kind, tmp_path, toy_data):
    (tmp_path / "a:b").symlink_to(toy_data)
    for path, data, message in (
        (
            every_kind.path,
            tmp_path / "no",
            f"data {tmp_path}/no: no such folder; give the folder with the dictionaries of the model",
        ),
        (every_kind.path, tmp_path / "a:b", f"data {tmp_path}/a:b: fairseq splits this path at ':' into two folders"),
        (tmp_path / "no" / "model.pt", toy_data, f"path {tmp_path}/no/model.pt: no such file"),
    ):
        with pytest.raises(InputError, match=re.escape(message)) as refused:
            load_translator(path, data)
        assert "\n" not in str(refused.value)


@pytest.mark.parametrize("known", ["in the checkpoint", "in the folder trained on"])
def test_dictionaries_of_another_corpus(of_l_and_t, toy_data, tmp_path, known):
    """The same words in another order. A checkpoint without hashes is compared with the data of its training, if that exists."""
    (tmp_path / "other").mkdir()
    for name in ("dict.en.txt", "dict.de.txt"):
        lines = (toy_data / name).read_text().splitlines(keepends=True)
        (tmp_path / "other" / name).write_text("".join(lines[::-1]))
    checkpoint, state = tmp_path / "checkpoint.pt", torch.load(of_l_and_t.path)
    if known != "in the checkpoint":
        del state["extra_state"]["fairseq_reservoir"]
    state["cfg"]["task"] |= {"source_lang": "en", "target_lang": "de"}
    torch.save(state, checkpoint)
    out = tmp_path / "model.safetensors"
    with pytest.raises(
        InputError, match=f"--data {tmp_path}/other: the source dictionary of DATA .* differs from that of the training"
    ):
        export(checkpoint, out, data=str(tmp_path / "other"))
    assert not out.exists()
    export(checkpoint, out, data=str(toy_data))
    if known != "in the checkpoint":
        return
    load_translator(out, toy_data)
    # An export has the hashes, so it does not need the data of the training.
    commands = [["export", "again.safetensors", "--with-text"], ["dump-embeddings", "vectors"]]
    if importlib.util.find_spec("ctranslate2"):
        commands.append(["materialize", "--ctranslate2", "folder"])
    for name, *rest in commands:
        rest = [word if word.startswith("--") else str(tmp_path / word) for word in rest]
        with pytest.raises(SystemExit, match=f"--data {tmp_path}/other: the source dictionary of DATA"):
            cli.main([name, str(out), *rest, "--data", str(tmp_path / "other")])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["checkpoint.pt", "model.safetensors", "other"]


def test_a_frozen_scalar_of_a_user_defined_kind():
    """A scalar is a tensor without dimensions and with one block. It is stored, or drawn by an initialiser for any shape."""
    stored = {"factor": from_torch(torch.tensor(0.5))}

    def check(tensors, **described):
        reader.check_sizes("a", {"masks": {}, "random": {"factor": {"shape": [], "blocks": 1, **described}}}, tensors)

    check(stored)
    with pytest.raises(InputError, match="1 rows cannot be split into 2 blocks"):
        check(stored, blocks=2)
    with pytest.raises(InputError, match=r"shape \[\]"):
        check({}, initialiser="orthogonal")
    for initialiser in OF_ANY_SHAPE:
        check({}, initialiser=initialiser)
        assert Recipe(initialiser, "a", (), fan_in=4 if initialiser == "bias_uniform" else None).draw(1).shape == ()

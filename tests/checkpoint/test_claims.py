"""Small files that describe large tensors are refused in one line, before memory is allocated."""

import json
import random
from contextlib import contextmanager

import pytest
import torch

from fairseq_reservoir.checkpoint import compact, packed_file
from fairseq_reservoir.checkpoint.export import export
from fairseq_reservoir.checkpoint.meta_checkpoint import open_checkpoint, read_state
from fairseq_reservoir.errors import InputError
from fairseq_reservoir.random_tensors.recipe import Recipe

TABLE = "encoder.embed_tokens.weight"
MOST = 10**6  # entries; the model has fewer


@pytest.fixture(scope="module")
def exported(every_kind, tmp_path_factory):
    """Description and tensors of an export with all kinds of layers and without random tensors."""
    path = tmp_path_factory.mktemp("exported") / "model.safetensors"
    export(every_kind.path, str(path), regenerate=True)
    return packed_file.read(path)


@pytest.fixture
def rewritten(exported, tmp_path):
    """Return a function that writes a changed export, with the right hash, and returns its path."""

    def write(change, name="changed"):
        body, tensors = json.loads(json.dumps(exported[0])), dict(exported[1])
        change(body, tensors)
        packed_file.write(str(path := tmp_path / f"{name}.safetensors"), body, tensors)
        return str(path)

    return write


@contextmanager
def frugal(monkeypatch):
    """Fail if more entries are drawn or decoded than a model of this size has, or if a dictionary is filled."""
    draw, read = Recipe.draw_array, compact._read

    def drawn(recipe, seed):
        assert torch.Size(recipe.shape).numel() < MOST, recipe
        return draw(recipe, seed)

    def unfolded(entry, payload, count):
        assert count < MOST, count
        return read(entry, payload, count)

    with monkeypatch.context() as patch:
        patch.setattr(Recipe, "draw_array", drawn)
        patch.setattr(compact, "_read", unfolded)
        yield


def claims_rows(rows, columns, also=()):
    def change(body, tensors):
        del tensors[TABLE]
        body["random"][TABLE] = {"initialiser": "ones", "shape": [rows, columns], "sha256": "0"}
        for name, value in also:
            body["config"]["model"].get("__namespace__", body["config"]["model"])[name] = value

    return change


@pytest.mark.parametrize(
    "change, message",
    [
        (claims_rows(2**30, 1), "the dictionary is not usable, because it has 1,073,741,824 entries; at most 1,048,576 are allowed"),
        (claims_rows(2**20, 1), f"{TABLE} is not usable, because its shape is .1048576, 1., but the model needs .1048576, 16."),
        (claims_rows(2**26, 16), "the dictionary is not usable, because it has 67,108,864 entries"),
        (claims_rows(12, 2**20), f"{TABLE} is not usable, because its shape is .12, 1048576., but the model needs .12, 16."),
        (lambda body, _: body["random"].update(other={"initialiser": "ones", "shape": [2**29], "sha256": "0"}),
         "tensors is not usable, because it lists tensors that the model does not have .536,870,912 entries in total"),
        (claims_rows(12, 16, [("reservoir_encoder", "L" * 10**6)]),
         "reservoir_encoder is not usable, because the model would have 1,000,000 layers, but the file describes only "),
    ],
)  # fmt: skip
def test_random_tensors_that_the_model_does_not_have(change, message, rewritten, monkeypatch):
    path = rewritten(change)
    with frugal(monkeypatch), pytest.raises(InputError, match=f"{path}: the description of {message}") as refusal:
        read_state(path)
    assert "\n" not in str(refusal.value)


def test_a_compact_form_larger_than_its_model(exported, tmp_path, monkeypatch):
    pytest.importorskip("constriction", reason="constriction is not installed")
    body, tensors = json.loads(json.dumps(exported[0])), dict(exported[1])
    del body["version"]
    tensors["other"] = torch.zeros(2**21, dtype=torch.uint8)  # no byte of it is stored
    monkeypatch.setattr(compact, "_MOST_PER_BYTE", 2**20)  # else that many symbols stay as they are
    packed_file.write(str(path := tmp_path / "changed.safetensors"), body, tensors, compact=True)
    assert path.stat().st_size < 2**17
    with (
        frugal(monkeypatch),
        pytest.raises(InputError, match="tensors that the model does not have .2,097,152 entries in total"),
    ):
        read_state(str(path))


def test_an_expanded_tensor_of_a_checkpoint(every_kind, tmp_path):
    """A table of 16 GB in a file of some kilobytes: all rows share one row of storage."""
    state = torch.load(every_kind.path, weights_only=False)
    state["model"][TABLE] = torch.zeros(1, 16).expand(2**28, 16)
    torch.save(state, path := tmp_path / "checkpoint.pt")
    with pytest.raises(InputError, match=f"checkpoint.pt: {TABLE} has 17,179,869,184 bytes, but the file stores 64"):
        open_checkpoint(str(path))


@pytest.mark.parametrize("tries", [12, pytest.param(1000, marks=pytest.mark.slow)])
def test_random_sizes(tries, rewritten, exported, monkeypatch):
    """Replace any shape or size of the configuration: the file is refused, or read without more memory."""
    refused = 0
    for seed in range(tries):
        draw = random.Random(seed)

        def change(body, tensors, draw=draw):
            for _ in range(draw.choice([1, 1, 2])):
                places = [*body["random"].values(), *body["masks"].values()]
                model = body["config"]["model"]
                model = model.get("__namespace__", model)
                sizes = [name for name, value in model.items() if type(value) is int and value > 1]
                number = draw.choice([0, 1, 13, 2**10, 2**15, 2**20, 2**31, 2**62, -1])
                if draw.random() < 0.6:
                    entry = draw.choice(places)
                    entry["shape"][draw.randrange(len(entry["shape"]))] = number
                else:
                    model[draw.choice(sizes)] = number

        path = rewritten(change, f"{seed}")
        with frugal(monkeypatch):
            try:
                open_checkpoint(path)
            except InputError as refusal:
                assert "\n" not in str(refusal), seed
                refused += 1
    assert refused > tries / 3

"""Checkpoints and exports of commit 3ee9a28 (see ``tests/old_files/make.sh``) still give the same results."""

import gzip
import shutil
import sys
from importlib import import_module
from pathlib import Path

import pytest
import safetensors.torch
import torch

from fairseq_reservoir import cli
from tests.support.commands import USER_DIR, load, train

FILES = Path(__file__).parents[1] / "old_files"
TINY = (
    "--encoder-embed-dim 8 --encoder-ffn-embed-dim 12 --encoder-attention-heads 2 --decoder-attention-heads 2"
    " --share-decoder-input-output-embed --cpu --dropout 0.1 --optimizer adam --lr 0.01 --batch-size 16 --disable-validation"
    " --no-epoch-checkpoints --seed 3 --num-workers 0 --log-format none"
).split()
MODELS = {
    "reservoir": "--arch reservoir_transformer --reservoir-encoder LTFGCMSs --reservoir-decoder LTCSF"
    " --freeze encoder.layers.0.ffn --frozen-init orthogonal",
    "l_and_t": "--arch reservoir_transformer --reservoir-encoder LT --reservoir-decoder T",
    "supermask": "--arch supermask_one_layer_transformer --encoder-layers 2 --decoder-layers 2 --mask-keep-ratio 0.3"
    " --mask-kind signed",
}


def slow(*values):
    return pytest.param(*values, marks=pytest.mark.slow)


# The plans of l_and_t are part of those of reservoir; it exists because a plain checkpoint can be made of it.
BY_DEFAULT = ["reservoir", slow("l_and_t"), "supermask"]


@pytest.fixture
def old(name, tmp_path):
    """A function that unpacks ``old("24.pt")`` of the model and returns its path."""

    def unpack(what):
        path = tmp_path / f"{name}.{what}"
        with gzip.open(FILES / f"{path.name}.gz") as packed, path.open("wb") as out:
            shutil.copyfileobj(packed, out)
        return path

    return unpack


def translations(path, data, folder, monkeypatch):
    words = f"{data} --user-dir {USER_DIR} --path {path} --results-path {folder}".split()
    words += "--cpu --beam 3 --max-len-b 10 --num-workers 0".split()
    monkeypatch.setattr(sys, "argv", ["fairseq-generate", *words])
    import_module("fairseq_cli.generate").cli_main()
    lines = (folder / "generate-test.txt").read_text().splitlines()
    return sorted(f"{line.split()[0]}\t{line.split(maxsplit=2)[2]}" for line in lines if line.startswith("H-"))


@pytest.mark.parametrize(
    "name, what",
    [
        ("reservoir", "24.pt"),
        ("supermask", "safetensors"),
        *(slow(*pair) for pair in (("reservoir", "safetensors"), ("supermask", "24.pt"))),
        *(slow("l_and_t", what) for what in ("24.pt", "safetensors")),
    ],
)
def test_it_translates_as_it_did(name, old, what, toy_data, tmp_path, monkeypatch):
    assert (
        translations(old(what), toy_data, tmp_path / "out", monkeypatch)
        == (FILES / f"{name}.txt").read_text().splitlines()
    )


@pytest.mark.parametrize("name", BY_DEFAULT)
def test_training_resumes_with_the_same_result(name, old, toy_data, tmp_path):
    """To the last bit on the original processor; others round differently.

    Biases of keys are excluded. Their gradient is only rounding error, because softmax cancels them, but Adam makes full steps of it.
    """
    path = old("24.pt")
    run = train(
        toy_data,
        *MODELS[name].split(),
        *TINY,
        "--max-update",
        30,
        "--restore-file",
        path,
        "--save-dir",
        tmp_path,
        begin=[],
    )
    assert len(run.losses) == 6
    then, now = safetensors.torch.load_file(old("30.safetensors")), load(tmp_path)["model"]
    assert then.keys() <= now.keys()
    assert any((then[tensor] != load(path.parent, path.name)["model"][tensor]).any() for tensor in then)
    for tensor, values in then.items():
        if not tensor.endswith("k_proj.bias"):
            torch.testing.assert_close(now[tensor], values, rtol=0, atol=1e-5, msg=tensor)


@pytest.mark.parametrize("name", BY_DEFAULT)
def test_its_export_is_as_it_was(old, toy_data, tmp_path):
    out = tmp_path / "new.safetensors"
    cli.main(["export", str(old("24.pt")), str(out), "--data", str(toy_data)])
    then, now = safetensors.torch.load_file(old("safetensors")), safetensors.torch.load_file(out)
    assert then.keys() <= now.keys() and len(then) > 5
    assert all(torch.equal(now[tensor], values) for tensor, values in then.items())


@pytest.mark.parametrize(
    "name, what",
    [
        ("l_and_t", "24.pt"),
        ("supermask", "safetensors"),
        ("reservoir", "safetensors"),
        *(slow(*pair) for pair in (("l_and_t", "safetensors"), ("supermask", "24.pt"), ("reservoir", "24.pt"))),
    ],
)
def test_a_plain_checkpoint_is_made_of_it(name, old, what, toy_data, tmp_path, monkeypatch, capsys):
    plain, path = tmp_path / "plain.pt", old(what)
    if name == "reservoir":
        with pytest.raises(SystemExit, match="F"):
            cli.main(["materialize", str(path), str(plain)])
        return
    cli.main(["materialize", str(path), str(plain)])
    assert (
        translations(plain, toy_data, tmp_path / "out", monkeypatch) == (FILES / f"{name}.txt").read_text().splitlines()
    )

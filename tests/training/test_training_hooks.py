"""A checkpoint whose tensors are not those of the model it is given to is refused in one line that names one of them."""

import shutil

import pytest

from tests.support.commands import error_of, train

PLAIN = "--arch transformer --encoder-layers 2 --decoder-layers 1".split()
OURS = "--reservoir-encoder LL --reservoir-decoder L".split()


@pytest.fixture(scope="module")
def checkpoints(toy_data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained")
    for name, model in (("plain", PLAIN), ("ours", OURS)):
        train(toy_data, *model, "--max-update", 1, "--disable-validation", "--save-dir", folder / name)
    return folder


@pytest.mark.parametrize("start", ["--restore-file", "--finetune-from-model"])
@pytest.mark.parametrize(
    "name, flags, difference",
    [
        # fc1's weight and bias and fc2's weight in three layers.
        ("ours", [*OURS, "--encoder-ffn-embed-dim", "8"],
         "its encoder.layers.0.fc1.weight has the shape [24, 16], not [8, 16], and 8 more have others"),
        ("plain", [*PLAIN, "--encoder-layers", "3"], "has no encoder.layers.2.self_attn.k_proj.weight and 15 more"),
        ("plain", [*PLAIN, "--encoder-layers", "1"], "is of a model with encoder.layers.1.self_attn.k_proj.weight and 15 more"),
    ],
)  # fmt: skip
def test_the_first_difference(toy_data, tmp_path, checkpoints, start, name, flags, difference):
    last = checkpoints / name / "checkpoint_last.pt"
    line, status = error_of(toy_data, *flags, start, last, "--max-update", 2, "--save-dir", tmp_path)
    assert line == f"fairseq-train: error: {last}: {difference}; give the flags it was trained with\n" and status == 2
    assert not list(tmp_path.glob("*.pt"))


def test_other_dictionaries(toy_data, tmp_path):
    longer = shutil.copytree(toy_data, tmp_path / "longer")
    for path in longer.glob("dict.*.txt"):
        path.write_text(path.read_text() + "unheard-of 1\n")
    run = [*PLAIN, "--save-dir", tmp_path / "trained"]
    train(toy_data, *run, "--max-update", 1, "--disable-validation")
    line, status = error_of(longer, *run, "--max-update", 2)
    # A row of 16 for fairseq's four symbols and the eight letters of the corpus.
    assert line == (
        f"fairseq-train: error: {tmp_path}/trained/checkpoint_last.pt: its encoder.embed_tokens.weight has the shape [12, 16],"
        f" not [13, 16], and 2 more have others; name the folder with the dictionaries it was trained with\n"
    )
    assert status == 2

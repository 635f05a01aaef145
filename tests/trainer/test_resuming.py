"""Refusals of checkpoints with tensors that do not fit the model. The message is one line that names one tensor."""

import shutil

import pytest

from fairseq_reservoir.trainer.resuming import SAME_DICTIONARIES
from tests.support.commands import RUN, error_of, train

PLAIN = "--arch transformer --encoder-layers 2 --decoder-layers 1".split()
OURS = "--reservoir-encoder LL --reservoir-decoder L".split()


@pytest.fixture(scope="module")
def checkpoints(toy_data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained")
    for name, model in (("plain", PLAIN), ("ours", OURS), ("positions", [*PLAIN, "--encoder-learned-pos"])):
        train(toy_data, *model, "--max-update", 1, "--disable-validation", "--save-dir", folder / name)
    return folder


@pytest.mark.parametrize(
    "start, name, flags, difference",
    [
        # fc1's weight and bias and fc2's weight in three layers.
        ("--restore-file", "ours", [*OURS, "--encoder-ffn-embed-dim", "8"],
         "its encoder.layers.0.fc1.weight has the shape [24, 16], but [8, 16] in the model, and 8 more tensors differ in shape"),
        # The token embeddings differ in width and not in rows, so that the dictionaries are not the cause.
        ("--finetune-from-model", "plain", [*PLAIN, "--encoder-embed-dim", "8", "--decoder-embed-dim", "8"],
         "its encoder.embed_tokens.weight has the shape [12, 16], but [12, 8] in the model, and 57 more tensors differ in shape"),
        # The rows differ, but those of the position embeddings, which do not depend on a dictionary.
        ("--finetune-from-model", "positions", [*PLAIN, "--encoder-learned-pos", "--max-source-positions", "20"],
         "its encoder.embed_positions.weight has the shape [1026, 16], but [22, 16] in the model"),
        ("--restore-file", "plain", [*PLAIN, "--encoder-layers", "3"],
         "does not have encoder.layers.2.self_attn.k_proj.weight and 15 more"),
        ("--restore-file", "plain", [*PLAIN, "--encoder-layers", "1"],
         "has encoder.layers.1.self_attn.k_proj.weight and 15 more, which this model does not have"),
    ],
)  # fmt: skip
def test_first_difference_is_named(toy_data, tmp_path, checkpoints, start, name, flags, difference):
    last = checkpoints / name / "checkpoint_last.pt"
    line, status = error_of(toy_data, *flags, start, last, "--max-update", 2, "--save-dir", tmp_path)
    assert (
        line == f"fairseq-train: error: {last}: {difference}; give the flags with which it was trained\n"
        and status == 2
    )
    assert not list(tmp_path.glob("*.pt"))


def test_other_dictionaries(toy_data, tmp_path):
    longer = shutil.copytree(toy_data, tmp_path / "longer")
    for path in longer.glob("dict.*.txt"):
        path.write_text(path.read_text() + "unheard-of 1\n")
    run = [*PLAIN, "--save-dir", tmp_path / "trained"]
    train(toy_data, *run, "--max-update", 1, "--disable-validation")
    line, status = error_of(longer, *run, "--max-update", 2)
    # There are 12 rows of width 16, for fairseq's four symbols and the eight letters of the corpus.
    assert line == (
        f"fairseq-train: error: {tmp_path}/trained/checkpoint_last.pt: its encoder.embed_tokens.weight has the shape [12, 16],"
        f" but [13, 16] in the model, and 2 more tensors differ in shape; {SAME_DICTIONARIES}\n"
    )
    assert status == 2


def test_swapped_languages(make_corpus, tmp_path):
    """The data folder is the same, but source and target have swapped their dictionaries."""
    data = make_corpus(train=16, valid=4, test=4)
    path = data / "dict.de.txt"
    path.write_text(path.read_text() + "unheard-of 1\n")
    run = ["--save-dir", tmp_path, "--disable-validation"]
    train(data, *PLAIN, *run, "--max-update", 1, "--source-lang", "en", "--target-lang", "de")
    line, _ = error_of(data, *PLAIN, *run, "--max-update", 2, "--source-lang", "de", "--target-lang", "en")
    assert line.endswith(f"and 2 more tensors differ in shape; {SAME_DICTIONARIES}\n")


def test_output_projection_with_another_name(toy_data, tmp_path):
    longer = shutil.copytree(toy_data, tmp_path / "longer")
    path = longer / "dict.de.txt"
    path.write_text(path.read_text() + "unheard-of 1\n")
    run = ["--arch", "lstm", "--save-dir", tmp_path / "trained", "--disable-validation"]
    train(toy_data, *run, "--max-update", 1, begin=RUN)
    line, _ = error_of(longer, *run, "--max-update", 2, begin=RUN)
    assert "decoder.embed_tokens.weight has the shape [12, 512]" in line and line.endswith(f"{SAME_DICTIONARIES}\n")

"""Read and write word vectors: coverage, dimension, exact numbers, and a dictionary for each side."""

import os
import random
import signal
import time
from pathlib import Path

import pytest
import torch
from fairseq import utils

from fairseq_reservoir import cli
from fairseq_reservoir.checkpoint.pretrained_embeddings import read_embeddings, write_tables
from fairseq_reservoir.errors import InputError
from tests.support.building import build_supermask, dictionary
from tests.support.commands import train

FLAG = "--encoder-embed-path"


def write(path, text):
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_words_are_found_by_spelling(tmp_path, caplog):
    path = write(tmp_path / "v", "3 2\nw1 0.5 -1\nelsewhere 9 9\nw3 2 3\n")
    with caplog.at_level("INFO"):
        indices, vectors = read_embeddings(path, dictionary(8), 2, 0.5, FLAG)
    # fairseq's four special symbols come first, so w1 is entry 5 and w3 entry 7
    assert indices.tolist() == [5, 7] and vectors.tolist() == [[0.5, -1], [2, 3]]
    assert "2 of 4 dictionary entries found" in caplog.text


@pytest.mark.parametrize(
    "text, message",
    [
        ("", "line 1 must be COUNT DIM"),
        ("w1 0.5 1\n", "line 1 must be COUNT DIM"),
        ("1 3\nw1 1 2 3\n", "its vectors have 3 numbers, but the model needs 2"),
        ("3 2\nw1 1 2\nw2 1 2\n", "line 1 says 3 vectors, but 2 follow; if the file is complete, correct line 1"),
        ("1 2\nw1 1\n", "line 2 has 1 numbers, but the model needs 2"),
        ("1 2\nw1 1 x\n", "line 2 has text in place of a number"),
        ("1 2\nw1 1 2\n", "contains 1 of the dictionary's 4 entries, a smaller fraction than --embed-min-coverage 0.5"),
    ],
)
def test_refusals(tmp_path, text, message):
    with pytest.raises(InputError) as error:
        read_embeddings(write(tmp_path / "v", text), dictionary(8), 2, 0.5, FLAG)
    assert str(error.value).startswith(f"{FLAG} {tmp_path}/v: ") and message in str(error.value)


def test_a_user_defined_model_reads_the_vectors_itself(tmp_path):
    path = write(tmp_path / "v", "2 2\nw1 0.5 -1\nelsewhere 9 9\n")
    vectors = utils.parse_embedding(path)
    assert (
        vectors
        and "w1" in vectors
        and "w2" not in vectors
        and len(vectors) == 2
        and set(vectors) == {"w1", "elsewhere"}
    )
    assert vectors["w1"].tolist() == [0.5, -1] and vectors.get("w2") is None


def test_a_missing_file():
    with pytest.raises(InputError, match="--encoder-embed-path no/such/file: cannot be read"):
        read_embeddings("no/such/file", dictionary(8), 2, 0.5, FLAG)


def test_written_vectors_are_read_back_to_the_bit(tmp_path):
    weight = torch.randn(8, 3)
    write_tables({tmp_path / "v": (dictionary(8), weight)})
    indices, vectors = read_embeddings(str(tmp_path / "v"), dictionary(8), 3, 1.0, FLAG)
    assert torch.equal(vectors, weight[indices]) and len(indices) == 8
    assert [p.name for p in tmp_path.iterdir()] == ["v"]
    with pytest.raises(InputError, match="8 rows, but the dictionary has 9 entries"):
        write_tables({tmp_path / "w": (dictionary(9), weight)})


@pytest.mark.slow
def test_kills_leave_no_vectors_of_two_models(tmp_path):
    """120 processes write the vectors of models 1, 2, ... and are killed at a random time within a write."""
    draw, paths, found = random.Random(1), [str(tmp_path / side) for side in ("v.en", "v.de")], set()

    def write(model):
        write_tables({path: (dictionary(40), torch.full((40, 3), float(model))) for path in paths})

    begin = time.perf_counter()
    write(0)
    longest = 2 * (time.perf_counter() - begin)
    for model in range(1, 121):
        child = os.fork()
        if child == 0:
            while True:
                write(model)
        time.sleep(draw.uniform(0, longest))
        os.kill(child, signal.SIGKILL)
        assert os.waitpid(child, 0)[1] == signal.SIGKILL
        texts = [Path(path).read_text() if Path(path).exists() else None for path in paths]
        models = {float(text.split()[-1]) for text in texts if text is not None}
        assert len(models) <= 1 and all(text is None or len(text.splitlines()) == 41 for text in texts)
        found.add(tuple(text is None for text in texts))
    assert found >= {(False, False), (False, True)}  # kills between the renames are among them


@pytest.mark.parametrize("how", ["masked", "frozen", "trained"])
def test_models_start_with_vectors(tmp_path, how):
    source, target = torch.randn(20, 8), torch.randn(20, 8)
    for side, weight in (("source", source), ("target", target)):
        write_tables({tmp_path / side: (dictionary(20), weight)})
    paths = {"encoder_embed_path": str(tmp_path / "source"), "decoder_embed_path": str(tmp_path / "target")}
    model = build_supermask(mask_embeddings=how, **paths)
    for stack, weight in ((model.encoder, source), (model.decoder, target)):
        held = stack.embed_tokens.frozen_weight if how == "masked" else stack.embed_tokens.weight
        # with a mask of half the entries, scaled by the square root of 2
        expected = weight * 2**0.5 if how == "masked" else weight
        assert torch.allclose(held[2:], expected[2:]) and held[1].abs().max() == 0


@pytest.mark.parametrize("arch", ["transformer", "supermask_one_layer_transformer"])
def test_dumped_vectors_start_another_model(toy_data, tmp_path, capsys, arch):
    run = train(
        toy_data,
        "--arch",
        arch,
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
    command = ["dump-embeddings", str(tmp_path / "checkpoint_last.pt"), str(tmp_path / "vectors")]
    cli.main(command)
    assert "vectors.en: 12 vectors of 16 numbers" in capsys.readouterr().out
    given = ["--encoder-embed-path", tmp_path / "vectors.en", "--decoder-embed-path", tmp_path / "vectors.de"]
    frozen = ["--arch", "supermask_one_layer_transformer", "--mask-embeddings", "frozen"]
    small = "--encoder-layers 1 --decoder-layers 1 --max-update 1 --no-save --disable-validation".split()
    started = train(toy_data, *frozen, *given, *small)
    for stack in ("encoder", "decoder"):
        trained = getattr(run.model.eval(), stack).embed_tokens.weight.detach()
        assert torch.equal(started.weights[f"{stack}.embed_tokens.weight"][2:], trained[2:])
    with pytest.raises(SystemExit, match="vectors.en: exists; --force replaces it"):
        cli.main(command)


def test_each_side_is_written_by_its_own_dictionary(make_corpus, tmp_path):
    data = make_corpus()
    (data / "dict.de.txt").write_text("".join(f"{word} 1\n" for word in "hgfedcba"))
    flags = "--encoder-layers 1 --decoder-layers 1 --max-update 1 --disable-validation --no-epoch-checkpoints".split()
    train(data, *flags, "--save-dir", tmp_path)
    cli.main(["dump-embeddings", str(tmp_path / "checkpoint_last.pt"), str(tmp_path / "vectors")])
    words = {side: [line.split()[0] for line in open(tmp_path / f"vectors.{side}")][5:] for side in ("en", "de")}
    assert words == {"en": list("abcdefgh"), "de": list("hgfedcba")}

"""Corpus of numbers in words, split by SentencePiece, with a tiny model trained on it in seconds. Other corpora are possible."""

import sys
from importlib import import_module
from types import SimpleNamespace
from unittest.mock import patch

from examples import mini_corpus
from tests.support.commands import train

FLAGS = "--reservoir-encoder LT --reservoir-decoder TL --share-all-embeddings --max-update 150 --batch-size 20".split()


def make(folder, raw=None, size=90, flags=FLAGS) -> SimpleNamespace:
    """Make the corpus and a model of L and T. Return its ``path``, ``data``, ``pieces`` (a SentencePiece model) and ``raw`` text folder.

    Args:
        folder: the folder for all files.
        raw: another corpus, in files named as Multi30k's.
        size: number of pieces.
        flags: flags of fairseq-train.
    """
    import sentencepiece

    data, pieces, cut = folder / "data", folder / "joint.model", folder / "cut"
    if raw is None:
        raw = folder / "raw"
        mini_corpus.main(raw)
    cut.mkdir()
    learn_pieces(raw, pieces, size)
    processor = sentencepiece.SentencePieceProcessor(model_file=str(pieces))
    for part in ("train", "val", "test_2016_flickr"):
        for language in ("en", "de"):
            lines = (raw / f"{part}.{language}").read_text().splitlines()
            written = [" ".join(processor.encode(line, out_type=str)) for line in lines]
            (cut / f"{part}.{language}").write_text("".join(f"{line}\n" for line in written))
    words = [
        "fairseq-preprocess",
        "--source-lang",
        "en",
        "--target-lang",
        "de",
        "--joined-dictionary",
        "--workers",
        "1",
    ]
    words += ["--trainpref", cut / "train", "--validpref", cut / "val", "--testpref", cut / "test_2016_flickr"]
    with patch.object(sys, "argv", [*map(str, words), "--destdir", str(data)]):
        import_module("fairseq_cli.preprocess").cli_main()
    train(data, *flags, "--no-epoch-checkpoints", "--disable-validation", "--save-dir", folder)
    return SimpleNamespace(path=folder / "checkpoint_last.pt", data=data, pieces=pieces, raw=raw)


def learn_pieces(raw, model, size):
    """Train a SentencePiece model of both languages and write it to ``model``, a path that ends in .model."""
    import sentencepiece

    sentencepiece.SentencePieceTrainer.train(
        input=[str(raw / "train.en"), str(raw / "train.de")],
        model_prefix=str(model.with_suffix("")),
        vocab_size=size,
        model_type="bpe",
        character_coverage=1.0,
        hard_vocab_limit=False,
        minloglevel=2,
    )

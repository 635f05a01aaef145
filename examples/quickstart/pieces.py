"""Learn one SentencePiece model for both languages and cut every part of the split with it.

Usage: pieces.py SPLIT_FOLDER SRC TGT VOCABULARY_SIZE OUTPUT_FOLDER

SPLIT_FOLDER has train, valid and test in both languages (train.SRC, train.TGT, ...), OUTPUT_FOLDER is created if necessary.
"""

import sys
from pathlib import Path

import sentencepiece
from pairs import read_lines, write_lines


def main():
    folder, src, tgt, size, output = sys.argv[1:]
    model = Path(output, "joint")
    for language in (src, tgt):
        text = Path(folder, f"train.{language}")
        if not text.is_file() or not text.stat().st_size:
            sys.exit(f"pieces: {text}: {'is empty' if text.is_file() else 'no such file'}")
    model.parent.mkdir(parents=True, exist_ok=True)
    sentencepiece.SentencePieceTrainer.train(
        input=[f"{folder}/train.{language}" for language in (src, tgt)],
        model_prefix=str(model),
        model_type="bpe",
        vocab_size=int(size),
        character_coverage=1.0,
        hard_vocab_limit=False,  # a small corpus gets the smaller vocabulary it has
        minloglevel=1,
    )
    cutter = sentencepiece.SentencePieceProcessor(model_file=f"{model}.model")
    for part in ("train", "valid", "test"):
        for language in (src, tgt):
            lines = cutter.encode(read_lines(Path(folder, f"{part}.{language}")), out_type=str)
            write_lines(Path(output, f"{part}.{language}"), map(" ".join, lines))


if __name__ == "__main__":
    main()

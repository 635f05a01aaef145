"""Cut SST-2 into pieces and hold out validation sentences.

Usage: sst2_pieces.py DATA VOCABULARY OUTPUT_FOLDER

VOCABULARY is the number of pieces to learn from the training sentences, or a SentencePiece model (FILE.model) to cut with.

Reads train.tsv and dev.tsv of DATA, plain or .gz, and writes train, valid and dev, each as .input0 (pieces) and .label.
The validation set is valid.tsv if this file exists. Otherwise it is every twentieth training sentence, so that choices do not use dev.
"""

import gzip
import sys
from pathlib import Path

import sentencepiece


def read(folder, part):
    """(sentence, label) pairs of a part, without the heading."""
    plain = folder / f"{part}.tsv"
    packed = folder / f"{part}.tsv.gz"
    text = plain.read_bytes() if plain.exists() else gzip.decompress(packed.read_bytes())
    rows = [line.split("\t") for line in text.decode("utf-8").split("\n")[1:] if line.strip()]
    wrong = next((number for number, row in enumerate(rows, 2) if len(row) != 2), None)
    if wrong:
        sys.exit(f"sst2_pieces: {part}.tsv line {wrong}: must be sentence<TAB>label")
    return [(sentence.strip(), label.strip()) for sentence, label in rows]


def learn(pairs, size, prefix):
    """Write a SentencePiece model of the sentences of ``pairs`` and return its file."""
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([sentence for sentence, _ in pairs]),
        model_prefix=prefix,
        model_type="bpe",
        vocab_size=size,
        character_coverage=1.0,
        hard_vocab_limit=False,  # a small corpus gets the smaller vocabulary it has
        minloglevel=1,
    )
    return f"{prefix}.model"


def main():
    data, vocabulary, output = Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3])
    pairs = read(data, "train")
    if (data / "valid.tsv").exists():
        parts = {"train": pairs, "valid": read(data, "valid")}
    else:
        parts = {"train": [pair for number, pair in enumerate(pairs, 1) if number % 20], "valid": pairs[19::20]}
    parts["dev"] = read(data, "dev")
    model = (
        vocabulary if vocabulary.endswith(".model") else learn(parts["train"], int(vocabulary), str(output / "pieces"))
    )
    cutter = sentencepiece.SentencePieceProcessor(model_file=model)
    for part, pairs in parts.items():
        lines = cutter.encode([sentence for sentence, _ in pairs], out_type=str)
        (output / f"{part}.input0").write_text("".join(f"{' '.join(line)}\n" for line in lines), encoding="utf-8")
        (output / f"{part}.label").write_text("".join(f"{label}\n" for _, label in pairs), encoding="utf-8")


if __name__ == "__main__":
    main()

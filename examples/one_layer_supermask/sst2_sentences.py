"""Split SST-2 again by sentence, so that the training set has no phrase that occurs only in held-out sentences.

Usage: sst2_sentences.py DATA OUTPUT_FOLDER

Reads train.tsv and dev.tsv of DATA, plain or .gz, puts them together, and writes train.tsv, valid.tsv and dev.tsv. A sentence is a
phrase that no other one contains and that ends with a full stop, a question mark or an exclamation mark. The hash of a sentence
decides: one sentence of ten is for dev, and one of twenty of the others for valid. The training set has every phrase that occurs in any
other sentence.
"""

import hashlib
import sys
from collections import Counter
from pathlib import Path

from sst2_pieces import read

ENDS = (".", "?", "!")
DEV, VALID = 10, 20


def containers(phrases):
    """Map each phrase to the longest phrases that contain its words in a row, or to itself if there are none."""
    longer = {phrase: set() for phrase in phrases}
    for phrase in longer:
        words = phrase.split()
        for length in range(1, len(words)):
            for start in range(len(words) - length + 1):
                part = " ".join(words[start : start + length])
                if part in longer:
                    longer[part].add(phrase)
    longest = {phrase for phrase, above in longer.items() if not above}
    return {phrase: above & longest or {phrase} for phrase, above in longer.items()}


def part_of(sentence):
    """Return ``dev``, ``valid`` or ``train``: the part of a phrase that no other phrase contains."""
    if not sentence.endswith(ENDS):
        return "train"
    number = int(hashlib.sha256(sentence.encode()).hexdigest(), 16)
    if number % DEV == 0:
        return "dev"
    return "valid" if number // DEV % VALID == 0 else "train"


def split(pairs):
    """(sentence, label) pairs of each part."""
    pairs = [(" ".join(phrase.split()), label) for phrase, label in pairs]
    above = containers(phrase for phrase, _ in pairs)
    part = {phrase: part_of(phrase) for phrases in above.values() for phrase in phrases}
    held_out = {name: [pair for pair in pairs if part.get(pair[0]) == name] for name in ("dev", "valid")}
    train = [pair for pair in pairs if any(part[sentence] == "train" for sentence in above[pair[0]])]
    return {"train": train, **held_out}


def main():
    data, output = map(Path, sys.argv[1:])
    for name, pairs in split([*read(data, "train"), *read(data, "dev")]).items():
        rows = "".join(f"{phrase}\t{label}\n" for phrase, label in pairs)
        (output / f"{name}.tsv").write_text(f"sentence\tlabel\n{rows}", encoding="utf-8")
        print(f"{name}: {len(pairs):,} phrases, {dict(Counter(label for _, label in pairs))}")


if __name__ == "__main__":
    main()

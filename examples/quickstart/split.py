"""Clean and split a parallel corpus.

Usage: split.py SOURCE_FILE TARGET_FILE MIN_WORDS OUTPUT_FOLDER
Write train, valid and test, with the languages of the two files as suffixes.
"""

import sys
from pathlib import Path

from pairs import fail, keep_good, read_pairs, split, write_lines

FEWEST = 100  # fewer pairs cannot train, validate and test anything


def main():
    source, target, min_words, output = sys.argv[1:]
    raw = read_pairs(Path(source), Path(target))
    good = keep_good(raw, int(min_words))
    if len(good) < FEWEST:
        fail(f"{source}: {len(good)} of {len(raw)} pairs are usable; at least {FEWEST} are needed")
    parts = split(good)
    Path(output).mkdir(parents=True, exist_ok=True)
    for name, pairs in parts.items():
        for side, path in enumerate((source, target)):
            write_lines(Path(output, name + Path(path).suffix), (pair[side] for pair in pairs))
    counts = ", ".join(f"{len(pairs)} {name}" for name, pairs in parts.items())
    print(f"{len(raw)} pairs, {len(good)} good ones: {counts}")


if __name__ == "__main__":
    main()

"""Spell text for a character language model: one token per character, spaces as ``▁``.

Usage: characters.py TEXT_FOLDER OUTPUT_FOLDER

Reads train.txt, valid.txt and test.txt. fairseq appends an end-of-sentence token to each line.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from lines import read_lines  # noqa: E402


def main():
    folder, output = map(Path, sys.argv[1:])
    for part in ("train", "valid", "test"):
        lines = read_lines(folder / f"{part}.txt")
        spelled = (" ".join(" ".join(line.split()).replace(" ", "▁")) for line in lines)
        (output / f"{part}.txt").write_text("".join(f"{line}\n" for line in spelled), encoding="utf-8")


if __name__ == "__main__":
    main()

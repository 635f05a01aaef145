"""Write a corpus of numbers as words, usable as every recipe's DATA: the corpus of MINI=1.

Usage: mini_corpus.py FOLDER

English and German numbers below a million make pairs to translate (train, val and test_2016_flickr, Multi30k's names), a
text (train.txt, valid.txt, test.txt) and phrases to classify, 1 for an even number (train.tsv, dev.tsv). The seed is fixed.
"""

import random
import sys
from pathlib import Path

SIZES = {"train": 1500, "val": 40, "test_2016_flickr": 40}

ENGLISH = "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen".split()
ENGLISH += ["eighteen", "nineteen"]
ENGLISH_TENS = "twenty thirty forty fifty sixty seventy eighty ninety".split()
GERMAN = "null eins zwei drei vier fünf sechs sieben acht neun zehn elf zwölf dreizehn vierzehn fünfzehn sechzehn siebzehn".split()
GERMAN += ["achtzehn", "neunzehn"]
GERMAN_TENS = "zwanzig dreißig vierzig fünfzig sechzig siebzig achtzig neunzig".split()


def english(number):
    """Words of ``number`` below a million: 21_304 is "twenty-one thousand three hundred and four"."""
    if number < 20:
        return ENGLISH[number]
    if number < 100:
        tens = ENGLISH_TENS[number // 10 - 2]
        return f"{tens}-{ENGLISH[number % 10]}" if number % 10 else tens
    size, name, link = (100, "hundred", " and ") if number < 1000 else (1000, "thousand", " ")
    head, rest = divmod(number, size)
    return f"{english(head)} {name}" + (f"{link}{english(rest)}" if rest else "")


def german(number, last=True):
    """The word of ``number`` below a million: 21_304 is "einundzwanzigtausenddreihundertvier"; "ein" unless it comes ``last``."""
    if number < 20:
        return "ein" if number == 1 and not last else GERMAN[number]
    if number < 100:
        ten, one = divmod(number, 10)
        return (f"{german(one, False)}und" if one else "") + GERMAN_TENS[ten - 2]
    size, name = (100, "hundert") if number < 1000 else (1000, "tausend")
    head, rest = divmod(number, size)
    return german(head, False) + name + (german(rest, last) if rest else "")


def main(folder):
    draw = random.Random(1)
    folder.mkdir(parents=True, exist_ok=True)
    for (part, size), text in zip(SIZES.items(), ("train", "valid", "test")):
        numbers = [draw.randrange(10 ** draw.randint(2, 6)) for _ in range(size)]
        files = {
            f"{part}.en": map(english, numbers),
            f"{part}.de": map(german, numbers),
            f"{text}.txt": map(english, numbers),
        }
        if part != "val":
            labelled = (f"{english(number)}\t{1 - number % 2}" for number in numbers)
            files["train.tsv" if part == "train" else "dev.tsv"] = ["sentence\tlabel", *labelled]
        for name, lines in files.items():
            (folder / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))

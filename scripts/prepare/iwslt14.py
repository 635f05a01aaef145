"""IWSLT14 German-English as in fairseq's prepare-iwslt14.sh (Edunov et al. 2018, cited by the papers).

Training: train.tags.de-en without lines of URLs, talk numbers and keywords, and without the tags of titles and descriptions.
Text is tokenised by Moses and in lower case. Pairs have 1 to 175 words per side and a length ratio of at most 1.5. Validation:
every 23rd of these pairs. Test: dev2010, dev2012, tst2010, tst2011 and tst2012, tokenised and in lower case. BPE has 10,000
merges learned on both languages, and each language has its own dictionary. With the public archive, fairseq's recipe gives 7,283
validation and 6,750 test pairs.
"""

import re
from functools import partial

from prepare import bpe, moses, options
from prepare.archives import Archive, extract, stamp
from prepare.console import run, say
from prepare.pairs import clean, every
from prepare.parallel import map_lines
from prepare.steps import Steps
from prepare.text import read, segments, write, write_pairs
from prepare.translation import binarise_pairs, learn_and_apply, read_pairs

NAME = "iwslt14"
LANGUAGES = ("de", "en")
# We found no published hash. The size is that of wit3's copy, from wget's output in facebookresearch/fairseq#1493.
ARCHIVE = Archive("http://dl.fbaipublicfiles.com/fairseq/data/iwslt14/de-en.tgz", copy_size=19982877)
TESTS = ("TED.dev2010", "TEDX.dev2012", "TED.tst2010", "TED.tst2011", "TED.tst2012")
MEMBERS = [f"de-en/train.tags.de-en.{language}" for language in LANGUAGES]
MEMBERS += [f"de-en/IWSLT14.{test}.de-en.{language}.xml" for test in TESTS for language in LANGUAGES]


def main(arguments=None):
    parser = options.parser(NAME, __doc__)
    options.add_bpe(parser, 10000)
    chosen = parser.parse_args(arguments)
    moses.check()
    bpe.check(chosen.bpe)
    steps = Steps(chosen.work)
    archive = options.archives(chosen, [ARCHIVE])[ARCHIVE.name]
    raw, tokens, text = (chosen.work / name for name in ("raw", "tokens", "text"))
    steps.make(raw, stamp(archive), lambda folder: extract(archive, MEMBERS, folder))
    steps.make(tokens, "", lambda folder: tokenise(raw, folder, chosen.jobs))
    steps.make(text, "", lambda folder: split(tokens, folder))
    pieces = learn_and_apply(steps, chosen, text, LANGUAGES, ["train", "valid", "test"])
    binarise_pairs(steps, chosen, pieces, LANGUAGES, ["test"])


def tokenise(raw, folder, jobs):
    for language in LANGUAGES:
        # fairseq's recipe lowercases after cleaning. The order does not matter, because word counts stay the same.
        make = partial(moses.prepare, language, lower=True)
        write(folder / f"train.{language}", map_lines(make, training_lines(raw / f"train.tags.de-en.{language}"), jobs))
        files = [raw / f"IWSLT14.{test}.de-en.{language}.xml" for test in TESTS]
        lines = (line for file in files for line in segments(file))
        write(folder / f"test.{language}", map_lines(make, lines, jobs))


def training_lines(path):
    for line in read(path):
        if not any(tag in line for tag in ("<url>", "<talkid>", "<keywords>")):
            yield re.sub("</?(title|description)>", "", line)


def split(tokens, folder):
    pairs = list(clean(read_pairs(tokens, "train", LANGUAGES), 1, 175, 1.5))
    for name, part in (
        ("train", every(pairs, 23, False)),
        ("valid", every(pairs, 23, True)),
        ("test", read_pairs(tokens, "test", LANGUAGES)),
    ):
        say(f"  {name}: {write_pairs(folder, name, LANGUAGES, part):,} pairs")


if __name__ == "__main__":
    run(f"prepare_{NAME}", main)

"""WMT14 English-German as in fairseq's prepare-wmt14en2de.sh (Ott et al. 2018), with 32,000 merges.

Training: Europarl v7, Common Crawl and News Commentary v12. Punctuation is normalised by Moses, control characters are removed,
and Moses' tokenizer splits hyphens (" @-@ "). Validation: every 100th of these pairs. With --valid newstest2013, that test set is
used and no pairs are held out. Test: newstest2014, all 3,003 sentences, tokenised but not normalised. BPE is learned on both
languages. Training and validation pairs then have 1 to 250 pieces per side and a length ratio of at most 1.5. Both languages share
a dictionary of at most 32,768 entries.
"""

from functools import partial

from prepare import bpe, moses, options
from prepare.archives import Archive, extract, stamp
from prepare.console import run, say
from prepare.pairs import clean, every
from prepare.parallel import map_lines
from prepare.steps import Steps
from prepare.text import read, segments, write, write_pairs
from prepare.translation import binarise_pairs, learn_and_apply, read_pairs

NAME = "wmt14"
LANGUAGES = ("en", "de")
# Sources: sizes and SHA-256 of the first two from huggingface/datasets, datasets/wmt18/dataset_infos.json; SHA-256 of the next two
# from stagedml's WMT download; MD5 from sacreBLEU's list of data sets.
EUROPARL, CRAWL, NEWS, DEV, TEST = (
    Archive(
        "http://statmt.org/wmt13/training-parallel-europarl-v7.tgz",
        657632379,
        "sha256:0224c7c710c8a063dfd893b0cc0830202d61f4c75c17eb8e31836103d27d96e7",
    ),
    Archive(
        "http://statmt.org/wmt13/training-parallel-commoncrawl.tgz",
        918311367,
        "sha256:c7a74e2ea01ac6c920123108627e35278d4ccb5701e15428ffa34de86fa3a9e5",
    ),
    Archive(
        "http://data.statmt.org/wmt17/translation-task/training-parallel-nc-v12.tgz",
        digest="sha256:2b45f30ef1d550d302fd17dd3a5cbe19134ccc4c2cf50c2dae534aee600101a2",
    ),
    Archive(
        "http://data.statmt.org/wmt17/translation-task/dev.tgz",
        digest="sha256:9d5ff04a28496b7796904ea65e50e3837bab14dbdca88b1e063105f17513dca9",
    ),
    Archive("http://statmt.org/wmt14/test-full.tgz", digest="md5:a8cd784e006feb32ac6f3d9ec7eb389a"),
)
CORPORA = {
    EUROPARL: "training/europarl-v7.de-en",
    CRAWL: "commoncrawl.de-en",
    NEWS: "training/news-commentary-v12.de-en",
}
TEST_FILES = {"en": "newstest2014-deen-src.en.sgm", "de": "newstest2014-deen-ref.de.sgm"}


def main(arguments=None):
    parser = options.parser(NAME, __doc__)
    options.add_bpe(parser, 32000)
    parser.add_argument(
        "--valid", choices=["held-out", "newstest2013"], default="held-out", help="validation set (%(default)s)"
    )
    chosen = parser.parse_args(arguments)
    moses.check()
    bpe.check(chosen.bpe)
    held_out = chosen.valid == "held-out"
    members = {archive: [f"{name}.{language}" for language in LANGUAGES] for archive, name in CORPORA.items()}
    members[TEST] = [f"test-full/{file}" for file in TEST_FILES.values()]
    if not held_out:
        members[DEV] = [f"dev/newstest2013.{language}" for language in LANGUAGES]
    steps = Steps(chosen.work)
    paths = options.archives(chosen, list(members))
    raw, tokens, text = (chosen.work / name for name in ("raw", "tokens", "text"))

    def unpack(folder):
        for archive, names in members.items():
            say(f"  {paths[archive.name]}")
            extract(paths[archive.name], names, folder)

    steps.make(raw, [stamp(paths[archive.name]) for archive in members], unpack)
    steps.make(tokens, "", lambda folder: tokenise(raw, folder, held_out, chosen.jobs))
    steps.make(text, "", lambda folder: split(tokens, folder, held_out))
    pieces = learn_and_apply(steps, chosen, text, LANGUAGES, ["train", "valid", "test"], keep=partial(keep, held_out))
    limits = ["--joined-dictionary", "--nwordssrc", 32768, "--nwordstgt", 32768]
    binarise_pairs(steps, chosen, pieces, LANGUAGES, ["test"], *limits)


def tokenise(raw, folder, held_out, jobs):
    for language in LANGUAGES:
        make = partial(moses.prepare, language, aggressive=True, normalise=True)
        files = [raw / f"{name.rpartition('/')[2]}.{language}" for name in CORPORA.values()]
        lines = (line for file in files for line in read(file))
        write(folder / f"train.{language}", map_lines(make, lines, jobs))
        if not held_out:
            write(folder / f"valid.{language}", map_lines(make, read(raw / f"newstest2013.{language}"), jobs))
        make = partial(moses.prepare, language, aggressive=True)
        write(folder / f"test.{language}", map_lines(make, segments(raw / TEST_FILES[language]), jobs))


def split(tokens, folder, held_out):
    def pairs(name):
        return read_pairs(tokens, name, LANGUAGES)

    parts = {"train": pairs("train"), "valid": None if held_out else pairs("valid"), "test": pairs("test")}
    if held_out:
        parts |= {"train": every(pairs("train"), 100, False), "valid": every(pairs("train"), 100, True)}
    for name, part in parts.items():
        say(f"  {name}: {write_pairs(folder, name, LANGUAGES, part):,} pairs")


def keep(held_out, name, pairs):
    return clean(pairs, 1, 250, 1.5) if name == "train" or name == "valid" and held_out else pairs


if __name__ == "__main__":
    run(f"prepare_{NAME}", main)

"""WMT18 Turkish-English, the language pair of Bogoychev (2021). The paper does not describe its preprocessing.

Training: SETIMES2, the 207,678 pairs of the shared task. Validation: newstest2016, or another set by --valid. Test: newstest2018
(fairseq's `test`) and newstest2017 (`test1`). In all sets, punctuation is normalised by Moses, control characters are removed,
and Moses' tokenizer splits hyphens. Training pairs have 1 to 250 pieces per side and a length ratio of at most 1.5. Both languages
share a vocabulary, by default SentencePiece's with 36,000 units, the size of the paper's tied embeddings.
"""

from functools import partial

from prepare import bpe, moses, options
from prepare.archives import Archive, extract, stamp
from prepare.console import run, say
from prepare.pairs import clean
from prepare.parallel import map_lines
from prepare.steps import Steps
from prepare.text import read, segments, write
from prepare.translation import binarise_pairs, learn_and_apply

NAME = "wmt18_tr_en"
LANGUAGES = ("tr", "en")
TRAIN = Archive("https://object.pouta.csc.fi/OPUS-SETIMES/v2/moses/en-tr.txt.zip")
DEV = Archive("http://data.statmt.org/wmt18/translation-task/dev.tgz")
# The MD5 is from sacreBLEU's list of data sets. We found no published sizes or hashes of the other two.
TEST = Archive("http://data.statmt.org/wmt18/translation-task/test.tgz", digest="md5:f996c245ecffea23d0006fa4c34e9064")


def sides(name):
    """Files of a test set by language."""
    return {"tr": f"{name}-tren-src.tr.sgm", "en": f"{name}-tren-ref.en.sgm"}


def main(arguments=None):
    parser = options.parser(NAME, __doc__)
    options.add_bpe(parser, 36000, "sentencepiece")
    parser.add_argument(
        "--valid", choices=["newstest2016", "newsdev2016"], default="newstest2016", help="(%(default)s)"
    )
    chosen = parser.parse_args(arguments)
    moses.check()
    bpe.check(chosen.bpe)
    sets = {"valid": chosen.valid, "test": "newstest2018", "test1": "newstest2017"}
    members = {
        TRAIN: [f"SETIMES.en-tr.{language}" for language in LANGUAGES],
        DEV: [f"dev/{file}" for name in ("valid", "test1") for file in sides(sets[name]).values()],
        TEST: [f"test/{file}" for file in sides(sets["test"]).values()],
    }
    steps = Steps(chosen.work)
    paths = options.archives(chosen, list(members))
    raw, text = chosen.work / "raw", chosen.work / "text"

    def unpack(folder):
        for archive, names in members.items():
            say(f"  {paths[archive.name]}")
            extract(paths[archive.name], names, folder)

    def tokenise(folder):
        for language in LANGUAGES:
            sources = {"train": read(raw / f"SETIMES.en-tr.{language}")}
            sources |= {name: segments(raw / sides(sets[name])[language]) for name in sets}
            make = partial(moses.prepare, language, aggressive=True, normalise=True)
            for name, lines in sources.items():
                count = write(folder / f"{name}.{language}", map_lines(make, lines, chosen.jobs))
                say(f"  {name}.{language}: {count:,} lines")

    def keep(name, pairs):
        return clean(pairs, 1, 250, 1.5) if name == "train" else pairs

    steps.make(raw, [[stamp(paths[archive.name]), names] for archive, names in members.items()], unpack)
    steps.make(text, chosen.valid, tokenise)
    pieces = learn_and_apply(steps, chosen, text, LANGUAGES, ["train", *sets], keep)
    binarise_pairs(steps, chosen, pieces, LANGUAGES, ["test", "test1"], "--joined-dictionary")


if __name__ == "__main__":
    run(f"prepare_{NAME}", main)

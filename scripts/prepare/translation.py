"""Last steps of all translation recipes: subword units and fairseq's binary format."""

from prepare import bpe
from prepare.binarise import binarise
from prepare.console import say
from prepare.text import read, write_pairs


def read_pairs(folder, name, languages):
    """Yield pairs of lines of ``folder/name.LANGUAGE``."""
    return zip(*(read(folder / f"{name}.{language}") for language in languages), strict=True)


def learn_and_apply(steps, options, text, languages, names, keep=None):
    """Split ``text/NAME.LANGUAGE`` into units learned on ``train`` of both languages. Return the new folder.

    Args:
        keep: function (name, pairs) that yields the pairs to keep, for recipes that clean pairs after splitting.
    """
    units, pieces = options.work / "bpe", options.work / "pieces"
    model = bpe.MODEL[options.bpe]

    def learn(folder):
        say(f"  {options.bpe}, {options.bpe_size:,} {'units' if options.bpe == 'sentencepiece' else 'merges'}")
        bpe.learn(options.bpe, options.bpe_size, [text / f"train.{language}" for language in languages], folder / model)

    def split(folder):
        for name in names:
            for language in languages:
                bpe.apply(
                    options.bpe, units / model, text / f"{name}.{language}", folder / f"{name}.{language}", options.jobs
                )
            if keep is not None:
                whole = [
                    (folder / f"{name}.{language}").rename(folder / f"{name}.all.{language}") for language in languages
                ]
                count = write_pairs(folder, name, languages, keep(name, read_pairs(folder, f"{name}.all", languages)))
                say(f"  {name}: {count:,} pairs after cleaning")
                for path in whole:
                    path.unlink()

    steps.make(units, [options.bpe, options.bpe_size], learn)
    steps.make(pieces, names, split)
    return pieces


def binarise_pairs(steps, options, pieces, languages, tests, *flags):
    """Make ``options.dest`` from ``pieces``, and copy the model of the units there.

    Args:
        tests: names of the test sets, in the order of fairseq's ``test``, ``test1``, ...
        flags: further flags of fairseq-preprocess.
    """
    command = ["--source-lang", languages[0], "--target-lang", languages[1], "--trainpref", pieces / "train"]
    command += ["--validpref", pieces / "valid", "--testpref", ",".join(str(pieces / test) for test in tests), *flags]

    def build(folder):
        binarise(folder, options.work / "preprocess.log", steps, *command, "--workers", options.jobs)
        model = bpe.MODEL[options.bpe]
        (folder / model).write_bytes((options.work / "bpe" / model).read_bytes())

    steps.make(options.dest, [*map(str, flags), *languages, *tests], build)
    say(f"{options.dest} is ready for fairseq-train")

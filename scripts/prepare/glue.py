"""GLUE's SST-2, QQP and MNLI for fairseq's sentence_prediction task, as in its preprocess_GLUE_tasks.sh.

Each task gets the folders DEST/TASK/input0 and label, and for sentence pairs input1. Rows of the training and development sets
with another number of fields than the header are dropped; QQP has such rows. Development sets become fairseq's `valid` (MNLI:
matched; mismatched is `valid1`). Test sets have no labels and become `test` (and `test1`).

--bpe gpt2 gives the pieces and the dictionary of the released RoBERTa models. The other kinds are learned on the task's training
sentences, or read from your own pretraining by --codes and --dict.
"""

from functools import partial
from pathlib import Path

from prepare import bpe, options
from prepare.archives import Archive, extract, stamp
from prepare.binarise import binarise
from prepare.console import InputError, run, say
from prepare.parallel import map_lines
from prepare.steps import Steps
from prepare.text import read, write

NAME = "glue"
# Sizes and SHA-256: huggingface/datasets, datasets/glue/dataset_infos.json. None is stated for the GPT-2 files.
TASKS = {
    "SST-2": Archive(
        "https://dl.fbaipublicfiles.com/glue/data/SST-2.zip",
        7439277,
        "sha256:d67e16fb55739c1b32cdce9877596db1c127dc322d93c082281f64057c16deaa",
    ),
    "QQP": Archive(
        "https://dl.fbaipublicfiles.com/glue/data/QQP-clean.zip",
        41696084,
        "sha256:40e7c862c04eb26ee04b67fd900e76c45c6ba8e6d8fab4f8f1f8072a1a3fbae0",
    ),
    "MNLI": Archive(
        "https://dl.fbaipublicfiles.com/glue/data/MNLI.zip",
        312783507,
        "sha256:e7c1d896d26ed6caf700110645df426cc2d8ebf02a5ab743d5a5c68ac1c83633",
    ),
}
GPT2 = [
    Archive(f"https://dl.fbaipublicfiles.com/fairseq/gpt2_bpe/{name}")
    for name in ("encoder.json", "vocab.bpe", "dict.txt")
]
INPUTS = {"SST-2": ["sentence"], "QQP": ["question1", "question2"], "MNLI": ["sentence1", "sentence2"]}
LABEL = {"SST-2": "label", "QQP": "is_duplicate", "MNLI": "gold_label"}
SPLITS = {"train": "train", "valid": "dev", "test": "test"}
MNLI_SPLITS = {
    "train": "train",
    "valid": "dev_matched",
    "valid1": "dev_mismatched",
    "test": "test_matched",
    "test1": "test_mismatched",
}


def main(arguments=None):
    parser = options.parser(NAME, __doc__)
    options.add_bpe(parser, 32000, "gpt2", extra=["gpt2"])
    parser.add_argument("--task", choices=TASKS, action="append", help="repeatable; all of them by default")
    parser.add_argument("--codes", type=Path, metavar="FILE", help="units of your own pretraining, with --dict")
    parser.add_argument("--dict", type=Path, metavar="FILE", help="dictionary of your own pretraining, with --codes")
    chosen = parser.parse_args(arguments)
    check(chosen)
    tasks = list(dict.fromkeys(chosen.task or TASKS))
    wanted = [TASKS[task] for task in tasks] + (GPT2 if chosen.bpe == "gpt2" else [])
    steps = Steps(chosen.work)
    paths = options.archives(chosen, wanted)
    for task in tasks:
        steps.begin()
        prepare(task, chosen, paths, steps)


def check(chosen):
    if chosen.bpe != "gpt2":
        bpe.check(chosen.bpe)
    if (chosen.codes is None) != (chosen.dict is None):
        raise InputError("--codes and --dict go together: give both, or neither")
    if chosen.codes and chosen.bpe == "gpt2":
        raise InputError(f"--codes goes with --bpe {', '.join(bpe.KINDS)}; --bpe gpt2 has its own")
    for path in filter(None, (chosen.codes, chosen.dict)):
        if not path.is_file():
            raise InputError(f"{path} does not exist")


def prepare(task, chosen, paths, steps):
    """Make ``chosen.dest/task``."""
    splits, inputs = MNLI_SPLITS if task == "MNLI" else SPLITS, [f"input{i}" for i in range(len(INPUTS[task]))]
    archive, work = paths[TASKS[task].name], chosen.work / task
    raw, text, units, pieces = (work / name for name in ("raw", "text", "bpe", "pieces"))

    def columns(folder):
        for name, file in splits.items():
            rows, left_out = read_table(raw / f"{file}.tsv", whole=not name.startswith("test"))
            for column, title in zip(inputs, INPUTS[task], strict=True):
                write(folder / f"{name}.{column}", (row.get(title, "") for row in rows))
            if not name.startswith("test"):
                write(folder / f"{name}.label", (row[LABEL[task]] for row in rows))
            say(
                f"  {name}: {len(rows):,} rows"
                + (f", {left_out} with another number of fields dropped" if left_out else "")
            )

    def learn(folder):
        if chosen.codes:
            (folder / bpe.MODEL[chosen.bpe]).write_bytes(chosen.codes.read_bytes())
        elif chosen.bpe != "gpt2":
            files = [text / f"train.{column}" for column in inputs]
            bpe.learn(chosen.bpe, chosen.bpe_size, files, folder / bpe.MODEL[chosen.bpe])

    def split(folder):
        make = partial(gpt2, str(paths["encoder.json"]), str(paths["vocab.bpe"])) if chosen.bpe == "gpt2" else None
        make = make or partial(bpe.segmenter, chosen.bpe, str(units / bpe.MODEL[chosen.bpe]))
        for name in splits:
            for column in inputs:
                write(folder / f"{name}.{column}", map_lines(make, read(text / f"{name}.{column}"), chosen.jobs))

    def build(folder):
        dictionary = paths["dict.txt"] if chosen.bpe == "gpt2" else chosen.dict
        for column in inputs:
            flags = (
                prefixes("train", pieces, column) + prefixes("valid", pieces, column) + prefixes("test", pieces, column)
            )
            flags += ["--srcdict", dictionary] if dictionary else []
            binarise(folder / column, work / f"preprocess.{column}.log", steps, *flags)
            dictionary = (
                dictionary or folder / column / "dict.txt"
            )  # sentence_prediction reads all inputs with the first one's
        flags = prefixes("train", text, "label") + prefixes("valid", text, "label")
        binarise(folder / "label", work / "preprocess.label.log", steps, *flags)

    def prefixes(kind, source, column):
        files = [str(source / f"{name}.{column}") for name in splits if name.startswith(kind)]
        return ["--only-source", "--workers", chosen.jobs, f"--{kind}pref", ",".join(files)]

    steps.make(
        raw, stamp(archive), lambda folder: extract(archive, [f"{task}/{file}.tsv" for file in splits.values()], folder)
    )
    steps.make(text, "", columns)
    own = [stamp(path) for path in (chosen.codes, chosen.dict) if path]
    gpt2_files = [stamp(paths[file.name]) for file in GPT2] if chosen.bpe == "gpt2" else []
    steps.make(units, [chosen.bpe, chosen.bpe_size, own, gpt2_files], learn)
    steps.make(pieces, "", split)
    steps.make(chosen.dest / task, "", build)
    say(f"{chosen.dest / task} is ready for fairseq-train --task sentence_prediction")


def read_table(path, whole):
    """Read the rows of a tab-separated file as dicts. If ``whole``, drop and count rows with another number of fields."""
    # fairseq-preprocess would read a carriage return within a line as its end.
    lines = (line.rstrip("\r").replace("\r", " ").split("\t") for line in read(path))
    header = next(lines)
    table = list(lines)
    rows = [dict(zip(header, row)) for row in table if not whole or len(row) == len(header)]
    return rows, len(table) - len(rows)


def gpt2(encoder, merges):
    """Return a function that converts a line to the numbers of its GPT-2 pieces, as in fairseq's dict.txt."""
    from fairseq.data.encoders.gpt2_bpe_utils import get_encoder

    units = get_encoder(encoder, merges)
    return lambda line: " ".join(map(str, units.encode(line)))


if __name__ == "__main__":
    run(f"prepare_{NAME}", main)

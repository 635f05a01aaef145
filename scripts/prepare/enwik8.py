"""enwik8 for character language models, with the splits of Dai et al. 2019 (Transformer-XL).

Each byte is a token, written as its number. The first 90 million bytes are for training, the next 5 million for validation and
the last 5 million for test. (Another file is split into 90 %, 5 % and 5 %.) A line feed ends a line and becomes fairseq's </s>,
which the model predicts like any other byte. This gives the papers' 1M / 54k / 56k lines. Each split has an additional </s> at its
end. The dictionary has all bytes of the file, as in Transformer-XL.
"""

from collections import Counter

from prepare import options
from prepare.archives import Archive, extract, stamp
from prepare.binarise import binarise
from prepare.console import InputError, run, say
from prepare.steps import Steps
from prepare.text import write

NAME = "enwik8"
# Size and SHA-256: huggingface/datasets, datasets/enwik8/dataset_infos.json.
ARCHIVE = Archive(
    "http://mattmahoney.net/dc/enwik8.zip",
    36445475,
    "sha256:547994d9980ebed1288380d652999f38a14fe291a6247c157c3d33d4932534bc",
)
# With fewer bytes, validation and test would be shorter than a line.
FEWEST = 1000
NUMBERS = [str(byte) for byte in range(256)]


def main(arguments=None):
    chosen = options.parser(NAME, __doc__).parse_args(arguments)
    steps = Steps(chosen.work)
    archive = options.archives(chosen, [ARCHIVE])[ARCHIVE.name]
    raw, text = chosen.work / "raw", chosen.work / "text"
    steps.make(raw, stamp(archive), lambda folder: extract(archive, ["enwik8"], folder))
    steps.make(text, "", lambda folder: split((raw / "enwik8").read_bytes(), folder))

    def build(folder):
        files = [f"--{split}pref={text / split}" for split in ("train", "valid", "test")]
        flags = ["--only-source", "--srcdict", text / "dict.txt", "--workers", chosen.jobs]
        binarise(folder, chosen.work / "preprocess.log", steps, *flags, *files)

    steps.make(chosen.dest, "", build)
    say(f"{chosen.dest} is ready for fairseq-train --task language_modeling")


def split(data, folder):
    if len(data) < FEWEST:
        raise InputError(
            f"enwik8 has {len(data)} bytes, at least {FEWEST} are needed for three parts: is it the right archive?"
        )
    held_out = len(data) // 20
    for name, part in (
        ("train", data[: -2 * held_out]),
        ("valid", data[-2 * held_out : -held_out]),
        ("test", data[-held_out:]),
    ):
        lines = (" ".join(map(NUMBERS.__getitem__, line)) for line in part.split(b"\n"))
        say(f"  {name}: {len(part):,} bytes in {write(folder / name, lines):,} lines")
    counts = sorted(Counter(data.replace(b"\n", b"")).items(), key=lambda item: (-item[1], item[0]))
    write(folder / "dict.txt", (f"{byte} {count}" for byte, count in counts))


if __name__ == "__main__":
    run(f"prepare_{NAME}", main)

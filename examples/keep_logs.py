"""What `fairseq-reservoir report` reads of a study's runs, in one small archive: a report can be made of it anywhere, again.

Usage: keep_logs.py [--no-translations GLOB | --not-done GLOB]... OUT.tar.xz RUNS [OLD=NEW ...]

Of RUNS, the folder of a sweep or of a recipe, every run that is done is kept: of train.log the configuration, the sizes of the model,
what `--freeze-auto` froze and the records of epochs and validations; of generate.log the references, the best translations, with 0 for
the score of each, and BLEU; of validate.log the results; of export.log the size of the file. OLD=NEW writes NEW for the text OLD, such
as a folder of this machine.
--no-translations leaves out those of the runs of such names, as of learning rates that were not chosen: they take most of the space.
--not-done keeps the runs of such names too, as of those that were ended on the way. The report is made anew by

    mkdir runs && tar xf OUT.tar.xz -C runs && fairseq-reservoir report runs --out report
"""

import io
import sys
import tarfile
from fnmatch import fnmatch
from lzma import PRESET_EXTREME
from pathlib import Path

from fairseq_reservoir.files import replacing
from fairseq_reservoir.report.exports import LOGS
from fairseq_reservoir.report.log_reader import read_log, read_record


def of_training(text):
    """The lines of a training log that a report reads, and when `--freeze-auto` froze what; those within an epoch are left out."""
    for line in text.splitlines():
        record = read_record(line)
        if record.kind != "inner" if record else _is_read(line) or "freeze_auto | update " in line:
            yield line


_NOTHING = read_log("")


def _is_read(line):
    """Whether a line that is no record changes what is read."""
    return read_log(line) != _NOTHING


def of_translating(text):
    """The references, the best translations, each in the order of the sentences, which packs best, and their BLEU."""
    kept, results = {}, []
    for line in text.splitlines():
        if line[:2] in ("T-", "H-", "D-"):
            name, *score, sentence = line.split("\t", 1 if line[0] == "T" else 2)
            kept.setdefault(("THD".index(line[0]), int(name[2:])), "\t".join([name, *("0" for _ in score), sentence]))
        elif line.startswith("Generate "):
            results.append(line)
    return [*(line for _, line in sorted(kept.items())), *results]


def of_validating(text):
    """The results of fairseq-validate, one line for each part of the data."""
    return (line for line in text.splitlines() if ' | {"' in line)


def of_exporting(text):
    """What `fairseq-reservoir export` says of the file that it wrote."""
    return (line for line in text.splitlines() if "whose entropy is" in line)


KEPT = {
    "train.log": of_training,
    "generate.log": of_translating,
    "validate.log": of_validating,
    **dict.fromkeys(LOGS, of_exporting),
    "state": str.splitlines,
    "command": str.splitlines,
}


def is_done(folder):
    """Of a sweep's run its state says so; a recipe's has no state, but what comes after its training."""
    state = folder / "state"
    return state.read_text().strip() == "done" if state.exists() else (folder / "validate.log").exists()


def matches(folder, patterns):
    return any(fnmatch(folder.name, pattern) for pattern in patterns)


def write(out, runs, renamed, untranslated=(), not_done=()):
    """``renamed``: pairs of texts; ``untranslated``, ``not_done``: patterns of names. The same runs make the same bytes."""
    every = sorted(log.parent for log in runs.glob("*/train.log"))
    folders = [folder for folder in every if is_done(folder) or matches(folder, not_done)]
    with (
        replacing(out) as temporary,
        tarfile.open(temporary, "w:xz", preset=9 | PRESET_EXTREME, format=tarfile.USTAR_FORMAT) as archive,
    ):
        for name, keep in KEPT.items():  # the same file of all runs, one after the other: they are much alike
            for folder in (one for one in folders if (one / name).exists()):
                if name == "generate.log" and matches(folder, untranslated):
                    continue
                text = "".join(f"{line}\n" for line in keep((folder / name).read_text(encoding="utf-8")))
                for old, new in renamed:
                    text = text.replace(old, new)
                content = text.encode()
                member = tarfile.TarInfo(f"{folder.name}/{name}")
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))


def main():
    words, patterns = sys.argv[1:], {"--no-translations": [], "--not-done": []}
    while words and words[0] in patterns:
        patterns[words[0]] += words[1:2]
        words = words[2:]
    if len(words) < 2 or not Path(words[1]).is_dir():
        sys.exit(__doc__)
    write(words[0], Path(words[1]), [tuple(pair.split("=", 1)) for pair in words[2:]], *patterns.values())


if __name__ == "__main__":
    main()

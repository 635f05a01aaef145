"""Archive only the files that a report needs, so that it can be made again elsewhere.

Usage: keep_logs.py [--not-done GLOB]... [--references FILE] OUT.tar.xz RUNS [OLD=NEW ...]

RUNS is the folder of a sweep or of a recipe. The archive has these parts of every finished run:

- train.log: the configuration, the sizes of the model, the freezes of `--freeze-auto`, and the records of epochs and validations
- generate.log: BLEU; validate.log: the results; export.log: the size of the file; test.log of a language model: the loss
- counts.jsonl: sacreBLEU's counts for each sentence, and chrF and tokenised BLEU of all, from which a report computes the same scores

Translations and references are left out, because the test set may belong to others. --references: as for a report. OLD=NEW replaces the
text OLD, such as a folder of this machine, with NEW. --not-done also archives stopped runs with these names. This makes the report:

    mkdir -p runs/OUT && tar xf OUT.tar.xz -C runs/OUT && fairseq-reservoir report runs/OUT --out report
"""

import io
import os
import re
import sys
import tarfile
from fnmatch import fnmatch
from lzma import PRESET_EXTREME
from pathlib import Path

from fairseq_reservoir.errors import InputError
from fairseq_reservoir.files import replacing
from fairseq_reservoir.studies.report import counts, run_files
from fairseq_reservoir.studies.report.exports import LOGS
from fairseq_reservoir.studies.report.log_reader import read_log, read_record
from fairseq_reservoir.studies.report.translations import read_references, read_test


def of_training(text):
    """Lines of a training log that a report reads, and the freezes of `--freeze-auto`, without records within an epoch."""
    for line in text.splitlines():
        record = read_record(line)
        if record.kind != "inner" if record else _is_read(line) or "freeze_auto | update " in line:
            yield line


_NOTHING = read_log("")


def _is_read(line):
    """Whether a report reads this line, which is not a record."""
    return read_log(line) != _NOTHING


def of_translating(text):
    """BLEU as fairseq prints it."""
    return (line for line in text.splitlines() if line.startswith("Generate "))


def of_validating(text):
    """Results of fairseq-validate, one line for each part of the data."""
    return (line for line in text.splitlines() if ' | {"' in line)


def of_testing(text):
    """Loss of fairseq-eval-lm, its text, and the scored share of the text."""
    return (
        line
        for line in text.splitlines()
        if any(
            sign in line for sign in ("Loss (base 2): ", "| Evaluated ", ":Evaluated ", " samples have invalid sizes")
        )
        or ("eval_lm:" in line and line.endswith(" examples"))
    )


def of_exporting(text):
    """Lines that `fairseq-reservoir export` printed about its file."""
    return (line for line in text.splitlines() if re.search(r"\.safetensors: [\d,]+ bytes|whose entropy is", line))


KEPT = {
    "train.log": of_training,
    "generate.log": of_translating,
    "validate.log": of_validating,
    **dict.fromkeys(("test.log", "eval-lm.log"), of_testing),
    **dict.fromkeys(LOGS, of_exporting),
    "state": str.splitlines,
    "command": str.splitlines,
}


def contents(folder, name, references):
    """Archived text of a file of a run, "" if there is none."""
    if name == counts.FILE:
        test = read_test(folder, references)
        if test.faults:
            raise InputError(f"{folder}: {'; '.join(test.faults)}")
        return counts.as_text(test.counts) if test.counts.by else ""
    file = folder / name
    if not os.path.lexists(file):
        return ""
    if fault := run_files.fault_of(file):
        raise InputError(f"{file}: {fault}")
    return "".join(f"{line}\n" for line in KEPT[name](run_files.text_of(file)))


def is_done(folder):
    """Whether a run is finished: by its state in a sweep, by the logs after its training in a recipe."""
    if os.path.lexists(folder / "state"):
        return run_files.state_of(folder) == ["done"]
    return (folder / "validate.log").exists()


def matches(folder, patterns):
    return any(fnmatch(folder.name, pattern) for pattern in patterns)


def write(out, runs, renamed, not_done=(), references=None):
    """Write the archive, the same bytes for the same runs. ``renamed``: pairs of texts; ``not_done``: patterns; ``references``: lines."""
    every = sorted(log.parent for log in runs.glob("*/train.log"))
    folders = [folder for folder in every if is_done(folder) or matches(folder, not_done)]
    if not folders:
        sys.exit(f"keep_logs.py: no run that is done in {runs}")
    with (
        replacing(out) as temporary,
        tarfile.open(temporary, "w:xz", preset=9 | PRESET_EXTREME, format=tarfile.USTAR_FORMAT) as archive,
    ):
        for name in (*KEPT, counts.FILE):  # the same file of all runs in a row compresses best
            for folder in folders:
                text = contents(folder, name, references)
                for old, new in renamed if name in KEPT else ():
                    text = text.replace(old, new)
                if text:
                    content = text.encode()
                    member = tarfile.TarInfo(f"{folder.name}/{name}")
                    member.size = len(content)
                    archive.addfile(member, io.BytesIO(content))


def main():
    words, flags = sys.argv[1:], {"--not-done": [], "--references": []}
    while words and words[0] in flags:
        flags[words[0]] += words[1:2]
        words = words[2:]
    if len(words) < 2 or not Path(words[1]).is_dir() or any("=" not in word for word in words[2:]):
        sys.exit(__doc__)
    try:
        references = read_references(*flags["--references"][-1:] or [None])
        write(
            words[0], Path(words[1]), [tuple(pair.split("=", 1)) for pair in words[2:]], flags["--not-done"], references
        )
    except InputError as error:
        sys.exit(f"keep_logs.py: {error}")


if __name__ == "__main__":
    main()

"""What `fairseq-reservoir report` reads of a study's runs, in one small archive: a report can be made of it anywhere, again.

Usage: keep_logs.py [--not-done GLOB]... [--references FILE] OUT.tar.xz RUNS [OLD=NEW ...]

Of RUNS, the folder of a sweep or of a recipe, every run that is done is kept: of train.log the configuration, the sizes of the model,
what `--freeze-auto` froze and the records of epochs and validations; of generate.log BLEU; of validate.log the results; of export.log the
size of the file; of a language model's test.log the loss. Translations and references are not kept, since a test set may be nobody's to
give away: counts.jsonl has what sacreBLEU counts in each sentence, and chrF and tokenised BLEU in all, of which a report makes the same
scores; --references as for a report. OLD=NEW writes NEW for the text OLD, such as a folder of this machine.
--not-done keeps the runs of such names too, as of those that were ended on the way. The report is made anew by

    mkdir -p runs/OUT && tar xf OUT.tar.xz -C runs/OUT && fairseq-reservoir report runs/OUT --out report
"""

import io
import os
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
    """BLEU as fairseq prints it."""
    return (line for line in text.splitlines() if line.startswith("Generate "))


def of_validating(text):
    """The results of fairseq-validate, one line for each part of the data."""
    return (line for line in text.splitlines() if ' | {"' in line)


def of_testing(text):
    """The loss that fairseq-eval-lm prints, of which text, and how much of it was scored."""
    return (
        line
        for line in text.splitlines()
        if any(
            sign in line for sign in ("Loss (base 2): ", "| Evaluated ", ":Evaluated ", " samples have invalid sizes")
        )
        or ("eval_lm:" in line and line.endswith(" examples"))
    )


def of_exporting(text):
    """What `fairseq-reservoir export` says of the file that it wrote."""
    return (line for line in text.splitlines() if "whose entropy is" in line)


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
    """The text that is kept of a file of a run, "" if there is none."""
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
    """Of a sweep's run its state says so; a recipe's has no state, but what comes after its training."""
    if os.path.lexists(folder / "state"):
        return run_files.state_of(folder) == ["done"]
    return (folder / "validate.log").exists()


def matches(folder, patterns):
    return any(fnmatch(folder.name, pattern) for pattern in patterns)


def write(out, runs, renamed, not_done=(), references=None):
    """``renamed``: pairs of texts; ``not_done``: patterns of names; ``references``: lines. The same runs make the same bytes."""
    every = sorted(log.parent for log in runs.glob("*/train.log"))
    folders = [folder for folder in every if is_done(folder) or matches(folder, not_done)]
    if not folders:
        sys.exit(f"keep_logs.py: no run that is done in {runs}")
    with (
        replacing(out) as temporary,
        tarfile.open(temporary, "w:xz", preset=9 | PRESET_EXTREME, format=tarfile.USTAR_FORMAT) as archive,
    ):
        for name in (*KEPT, counts.FILE):  # the same file of all runs, one after the other: they are much alike
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

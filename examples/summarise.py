"""Print one Markdown table of the runs of multi30k.sh from their logs.

Usage: summarise.py RUN_FOLDER...
"""

import json
import sys
from pathlib import Path

from fairseq_reservoir.errors import InputError
from fairseq_reservoir.studies.report import find_runs

HEAD = ("run", "parameters", "trained", "BLEU", "s/update", "minutes", "updates", "best valid. loss")


def read_training(folder):
    """(parameters, trained), (s/update, minutes, updates), cells of a table, and the run as ``fairseq-reservoir report`` reads it.

    Seconds per update count training steps only (fairseq's train_wall), including repeated steps of a resumed run. Minutes also
    count validation and saving.
    """
    try:
        (run,) = find_runs([folder / "train.log"])
    except InputError as error:
        sys.exit(f"summarise: {error}")
    if not run.updates or run.log.parameters is None:
        sys.exit(f"summarise: {folder}/train.log has no updates yet")
    times = f"{run.seconds / (run.updates - run.clock.begins_at):.3f}", f"{run.wall / 60:.1f}", f"{run.updates:,}"
    return (f"{run.log.parameters:,}", f"{run.log.trained:,}"), times, run


def read_run(folder):
    """Cells of one row, and the signature of its BLEU."""
    sizes, times, run = read_training(folder)
    try:
        bleu = json.loads((folder / "bleu.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        sys.exit(f"summarise: {folder}/bleu.json cannot be read ({error})")
    best = min((record.values["loss"] for record in run.validations), default=float("nan"))
    return (folder.resolve().name, *sizes, f"{bleu['score']:.2f}", *times, f"{best:.3f}"), bleu["signature"]


def table(folders):
    rows, signatures = zip(*map(read_run, folders))
    lines = [HEAD, ("---",) * len(HEAD), *rows]
    return "\n".join(
        [*(f"| {' | '.join(line)} |" for line in lines), "", *(f"BLEU: {text}" for text in sorted(set(signatures)))]
    )


if __name__ == "__main__":
    if len(sys.argv) == 1:
        sys.exit(__doc__)
    print(table([Path(folder) for folder in sys.argv[1:]]))

"""One Markdown table of the runs of multi30k.sh, every number out of their logs.

Usage: summarise.py RUN_FOLDER...
"""

import json
import re
import sys
from pathlib import Path

HEAD = ("run", "parameters", "trained", "BLEU", "s/update", "minutes", "updates", "best valid. loss")


def last(pattern, log, what):
    """The last match of ``pattern``: a resumed run writes its beginning again."""
    matches = re.findall(pattern, log)
    if not matches:
        sys.exit(f"summarise: a log has no {what}")
    return matches[-1]


def by_epoch(records, key):
    """The records that have ``key``, one per epoch; of an epoch run twice, the later."""
    return {record["epoch"]: record for record in records if key in record}.values()


def wall_seconds(records):
    """Seconds since the start, summed over the parts of a resumed run, each of which counts from 0."""
    clock = [float(record["wall"] if "update" in record else record["train_wall"]) for record in records]
    ends = [now for now, then in zip(clock, clock[1:] + [0.0]) if then < now]
    return sum(ends)


def read_training(folder):
    """(parameters, trained), (s/update, minutes, updates) and the records of a run's train.log; cells of a table.

    Seconds per update are of training steps alone (fairseq's train_wall); minutes also of validation and saving.
    """
    log = (folder / "train.log").read_text(encoding="utf-8")
    records = [json.loads(line) for line in re.findall(r'\{"epoch": .*\}', log)]
    epochs = by_epoch(records, "train_train_wall")
    if not epochs:
        sys.exit(f"summarise: {folder}/train.log has no finished epoch")
    updates = max(int(epoch["train_num_updates"]) for epoch in epochs)
    sizes = r"num\. shared model params: ([\d,]+) \(num\. trained: ([\d,]+)\)"
    times = (
        f"{sum(float(epoch['train_train_wall']) for epoch in epochs) / updates:.3f}",
        f"{wall_seconds([r for r in records if 'update' in r or 'train_train_wall' in r]) / 60:.1f}",
        f"{updates:,}",
    )
    return last(sizes, log, "number of parameters"), times, records


def read_run(folder):
    """The cells of one row, and the signature of its BLEU."""
    sizes, times, records = read_training(folder)
    bleu = json.loads((folder / "bleu.json").read_text(encoding="utf-8"))
    best = min((epoch["valid_loss"] for epoch in by_epoch(records, "valid_loss")), key=float)
    return (folder.resolve().name, *sizes, f"{bleu['score']:.2f}", *times, best), bleu["signature"]


def table(folders):
    rows, signatures = zip(*map(read_run, folders))
    lines = [HEAD, ("---",) * len(HEAD), *rows]
    return "\n".join(
        [*(f"| {' | '.join(line)} |" for line in lines), "", *(f"BLEU: {text}" for text in sorted(set(signatures)))]
    )


if __name__ == "__main__":
    print(table([Path(folder) for folder in sys.argv[1:]]))

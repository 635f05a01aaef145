"""A table of the runs of sst2.sh: accuracy on dev beside the share of its most frequent label.

Usage: sst2_report.py DEV_LABELS RUN_FOLDER...
"""

import json
import re
import sys
from collections import Counter
from pathlib import Path

HEAD = ("run", "parameters", "trained", "dev accuracy", "majority", "above", "updates", "minutes")


def last(pattern, text, where):
    matches = re.findall(pattern, text)
    if not matches:
        sys.exit(f"sst2_report: {where}: no {pattern}")
    return matches[-1]


def row(folder, majority):
    """The cells of one run. Minutes are of training steps alone (fairseq's train_wall), summed over resumed parts."""
    train, validate = ((folder / f"{name}.log").read_text(encoding="utf-8") for name in ("train", "validate"))
    sizes = last(r"num\. shared model params: ([\d,]+) \(num\. trained: ([\d,]+)\)", train, folder)
    accuracy = float(last(r'"test_accuracy": "([\d.]+)"', validate, folder))
    records = [json.loads(line) for line in re.findall(r'\{"epoch": .*\}', train)]
    epochs = {record["epoch"]: record for record in records if "train_train_wall" in record}.values()
    minutes = sum(float(epoch["train_train_wall"]) for epoch in epochs) / 60
    updates = max(int(epoch["train_num_updates"]) for epoch in epochs)
    measured = f"{accuracy:.1f} %", f"{majority:.1f} %", f"{accuracy - majority:+.1f}"
    return folder.resolve().name, *sizes, *measured, f"{updates:,}", f"{minutes:.1f}"


def main():
    labels, *folders = map(Path, sys.argv[1:])
    counts = Counter(labels.read_text(encoding="utf-8").split())
    majority = 100 * max(counts.values()) / sum(counts.values())
    for line in (HEAD, ("---",) * len(HEAD), *(row(folder, majority) for folder in folders)):
        print(f"| {' | '.join(line)} |")


if __name__ == "__main__":
    main()

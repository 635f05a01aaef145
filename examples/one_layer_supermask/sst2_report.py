"""Print a table of the runs of sst2.sh: accuracy on dev and the share of dev's most frequent label.

Usage: sst2_report.py DEV_LABELS RUN_FOLDER...
"""

import re
import sys
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from summarise import read_training  # noqa: E402

HEAD = ("run", "parameters", "trained", "dev accuracy", "majority", "above", "updates", "minutes")


def row(folder, majority):
    """Cells of one run. Minutes count only training steps (fairseq's train_wall), also those before a resume."""
    sizes, _, run = read_training(folder)
    accuracies = re.findall(r'"test_accuracy": "([\d.]+)"', (folder / "validate.log").read_text(encoding="utf-8"))
    if not accuracies:
        sys.exit(f"sst2_report: {folder}/validate.log has no test_accuracy")
    accuracy = float(accuracies[-1])
    measured = f"{accuracy:.1f} %", f"{majority:.1f} %", f"{accuracy - majority:+.1f}"
    return folder.resolve().name, *sizes, *measured, f"{run.updates:,}", f"{run.seconds / 60:.1f}"


def main():
    labels, *folders = map(Path, sys.argv[1:])
    counts = Counter(labels.read_text(encoding="utf-8").split())
    majority = 100 * max(counts.values()) / sum(counts.values())
    for line in (HEAD, ("---",) * len(HEAD), *(row(folder, majority) for folder in folders)):
        print(f"| {' | '.join(line)} |")


if __name__ == "__main__":
    main()

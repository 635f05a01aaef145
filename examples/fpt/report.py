"""Print a table of the arms of a task: accuracy on valid at each learning rate, and on test at the best rate.

Usage: report.py ARM_FOLDER...

Each folder in an ARM_FOLDER that has a test.log is one rate. The best rate has the highest accuracy on valid, or is the smallest of several
best ones.
"""

import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from summarise import read_training  # noqa: E402


def read_arm(folder):
    """((valid, test) by rate, trained parameters, minutes of training steps) of an arm."""
    scores, seconds, trained = {}, 0.0, "?"
    for log in sorted(folder.glob("*/test.log"), key=lambda log: float(log.parent.name)):
        (_, trained), _, run = read_training(log.parent)
        found = re.findall(r'"test_accuracy": "([\d.]+)"', log.read_text(encoding="utf-8"))
        if not found or not run.validations:
            sys.exit(f"report: {log.parent} has no accuracy on {'valid' if found else 'test'}")
        scores[log.parent.name] = max(record.values["accuracy"] for record in run.validations), float(found[-1])
        seconds += run.seconds
    if not scores:
        sys.exit(f"report: {folder}: no test.log of any rate")
    return scores, trained, seconds / 60


def table(folders):
    """Lines of a Markdown table."""
    arms = {folder: read_arm(folder) for folder in folders}
    rates = sorted({rate for scores, _, _ in arms.values() for rate in scores}, key=float)
    rows = [("arm", "trained", *(f"valid, {rate}" for rate in rates), "best rate", "test", "minutes")]
    rows.append(("---",) * len(rows[0]))
    for folder, (scores, trained, minutes) in arms.items():
        best = max(scores, key=lambda rate: scores[rate][0])
        cells = (f"{scores[rate][0]:.1f}" if rate in scores else "" for rate in rates)
        rows.append((folder.resolve().name, trained, *cells, best, f"**{scores[best][1]:.1f}**", f"{minutes:.1f}"))
    return [f"| {' | '.join(row)} |" for row in rows]


if __name__ == "__main__":
    print("\n".join(table(list(map(Path, sys.argv[1:])))))

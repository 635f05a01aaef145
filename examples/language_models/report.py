"""Print one Markdown table of the runs of run.sh from their logs.

Usage: report.py RUN_FOLDER...
"""

import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from summarise import read_training  # noqa: E402

HEAD = ("run", "parameters", "trained", "bits", "perplexity", "s/update", "minutes", "updates")
# The test loss that fairseq-eval-lm and fairseq-validate print, both in bits.
LOSS = r'(?:Loss \(base 2\): |"test_loss": ")([\d.]+)'


def row(folder):
    """Cells of one run. Bits and perplexity (2 ** bits) are per character or per masked piece."""
    sizes, times, _ = read_training(folder)
    losses = re.findall(LOSS, (folder / "test.log").read_text(encoding="utf-8"))
    if not losses:
        sys.exit(f"report: {folder}/test.log has no loss")
    bits = float(losses[-1])
    return (folder.resolve().name, *sizes, f"{bits:.3f}", f"{2**bits:.2f}", *times)


if __name__ == "__main__":
    for line in (HEAD, ("---",) * len(HEAD), *(row(Path(folder)) for folder in sys.argv[1:])):
        print(f"| {' | '.join(line)} |")

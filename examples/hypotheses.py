"""The detokenised translations of a fairseq-generate log, in the order of the test set, one per line.

Usage: hypotheses.py GENERATE_LOG
"""

import re
import sys
from pathlib import Path


def hypotheses(log):
    """Translations by sentence number, which must be 0, 1, 2, ... without a gap."""
    found = {}
    for line in log.split("\n"):
        if match := re.match(r"D-(\d+)\t[^\t]*\t(.*)", line):
            found[int(match[1])] = match[2]
    if not found or sorted(found) != list(range(len(found))):
        sys.exit(f"hypotheses: the log holds {len(found)} translations, not sentences 0, 1, 2, ... without a gap")
    return [found[number] for number in range(len(found))]


if __name__ == "__main__":
    print("\n".join(hypotheses(Path(sys.argv[1]).read_text(encoding="utf-8"))))

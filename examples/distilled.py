"""The translations of a fairseq-generate log in the pieces of its dictionary, in the order of the corpus, one per line.

Usage: distilled.py GENERATE_LOG

Where the model says nothing, the reference stands.
"""

import sys
from pathlib import Path

from fairseq_reservoir.report.translations import in_order, read_sentences


def distilled(log):
    """The H-lines of sentences 0, 1, 2, ..., of which none may be missing, and T-lines in place of empty ones."""
    found = read_sentences(log)
    lines = in_order(found.get("H", {}))
    if lines is None:
        sys.exit(
            f"distilled: the log holds {len(found.get('H', {}))} translations, not sentences 0, 1, 2, ... without a gap"
        )
    return [line or found["T"][number] for number, line in enumerate(lines)]


if __name__ == "__main__":
    print("\n".join(distilled(Path(sys.argv[1]).read_text(encoding="utf-8"))))

"""Print the detokenised translations of a fairseq-generate log, in the order of the test set, one per line.

Usage: hypotheses.py GENERATE_LOG
"""

import sys
from pathlib import Path

from fairseq_reservoir.studies.report.translations import by_line_number, read_sentences


def hypotheses(log):
    """Translations of sentences 0, 1, 2, ..., without gaps."""
    found = read_sentences(log).get("D", {})
    lines = by_line_number(found)
    if lines is None:
        sys.exit(f"hypotheses: the log holds {len(found)} translations, not sentences 0, 1, 2, ... without a gap")
    return lines


if __name__ == "__main__":
    print("\n".join(hypotheses(Path(sys.argv[1]).read_bytes().decode())))

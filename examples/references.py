"""Print the references of a fairseq-generate log as text, in the order of the test set, one per line.

fairseq prints them as the model's tokens (T-lines), and Moses' detokenizer rebuilds text from them. It is not the raw text: changes
by the tokenizer or by lower case remain, so a score against it is not comparable with published sacreBLEU.

Usage: references.py GENERATE_LOG LANGUAGE
"""

import sys
from pathlib import Path

from sacremoses import MosesDetokenizer

from fairseq_reservoir.studies.report.translations import by_line_number, read_sentences


def references(log, language):
    """References of sentences 0, 1, 2, ..., without gaps."""
    found = read_sentences(log).get("T", {})
    lines = by_line_number(found)
    if lines is None:
        sys.exit(f"references: the log holds {len(found)} references, not of sentences 0, 1, 2, ... without a gap")
    join = MosesDetokenizer(language).detokenize
    return [join(line.split()) for line in lines]


if __name__ == "__main__":
    print("\n".join(references(Path(sys.argv[1]).read_bytes().decode(), sys.argv[2])))

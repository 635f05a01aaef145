"""The references of a fairseq-generate log as text, in the order of the test set, one per line.

fairseq prints them in the words that the model saw (T-lines); Moses' detokenizer puts those together again. That is not the raw
text: what the tokenizer or lower case changed stays so, and a score against them is not comparable with published sacreBLEU.

Usage: references.py GENERATE_LOG LANGUAGE
"""

import re
import sys
from pathlib import Path

from sacremoses import MosesDetokenizer


def references(log, language):
    """References by sentence number, which must be 0, 1, 2, ... without a gap."""
    found = dict(re.findall(r"^T-(\d+)\t(.*)$", log, re.MULTILINE))
    if not found or set(found) != {str(number) for number in range(len(found))}:
        sys.exit(f"references: the log holds {len(found)} references, not of sentences 0, 1, 2, ... without a gap")
    join = MosesDetokenizer(language).detokenize
    return [join(found[str(number)].split()) for number in range(len(found))]


if __name__ == "__main__":
    print("\n".join(references(Path(sys.argv[1]).read_text(encoding="utf-8"), sys.argv[2])))

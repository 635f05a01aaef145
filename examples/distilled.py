"""The translations of a fairseq-generate log in the pieces of its dictionary, in the order of the corpus, one per line.

Usage: distilled.py GENERATE_LOG BIN/train.PAIR.SOURCE
       distilled.py --languages CHECKPOINT

The second file, without its ending, is what was translated: the log must have all of its sentences. Where the model says nothing, the
reference stands. --languages prints those that a checkpoint translates from and to.
"""

import sys
from pathlib import Path

from fairseq_reservoir.studies.report.translations import in_order, read_sentences


def distilled(log, size):
    """The H-lines of sentences 0 to ``size`` - 1, of which none may be missing, and T-lines in place of empty ones."""
    found = read_sentences(log)
    lines = in_order(found.get("H", {})) or []
    if len(lines) != size:
        sys.exit(
            f"distilled: the log holds {len(found.get('H', {}))} translations, not each of the {size} sentences once"
        )
    return [line or found["T"][number] for number, line in enumerate(lines)]


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    if sys.argv[1] == "--languages":
        from fairseq_reservoir.checkpoint.opened import read_state

        task = read_state(sys.argv[2], "TEACHER")["cfg"].task
        print(task.source_lang, task.target_lang)
    else:
        from fairseq.data.indexed_dataset import make_dataset

        text = Path(sys.argv[1]).read_bytes().decode()
        print("\n".join(distilled(text, len(make_dataset(sys.argv[2], impl="mmap")))))


if __name__ == "__main__":
    main()

"""Print the translations of a fairseq-generate log as pieces, in the order of the corpus, one per line.

Usage: distilled.py GENERATE_LOG BIN/train.PAIR.SOURCE
       distilled.py --languages CHECKPOINT

BIN/train.PAIR.SOURCE is the translated file: the log must have all of its sentences. An empty translation is replaced by the reference.
--languages prints the language pair of a checkpoint.
"""

import sys
from pathlib import Path

from fairseq_reservoir.studies.report.translations import by_line_number, read_sentences


def distilled(log, size):
    """H-lines of sentences 0 to ``size`` - 1, without gaps, and T-lines in place of empty ones."""
    found = read_sentences(log)
    lines = by_line_number(found.get("H", {})) or []
    if len(lines) != size:
        sys.exit(
            f"distilled: the log holds {len(found.get('H', {}))} translations, not each of the {size} sentences once"
        )
    return [line or found["T"][number] for number, line in enumerate(lines)]


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    if sys.argv[1] == "--languages":
        from fairseq_reservoir.checkpoint.meta_checkpoint import read_state

        task = read_state(sys.argv[2], "TEACHER")["cfg"].task
        print(task.source_lang, task.target_lang)
    else:
        from fairseq.data.indexed_dataset import make_dataset

        text = Path(sys.argv[1]).read_bytes().decode()
        print("\n".join(distilled(text, len(make_dataset(sys.argv[2], impl="mmap")))))


if __name__ == "__main__":
    main()

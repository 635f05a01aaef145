"""Reports the translations of a run: BLEU with its signature, BLEU of copying the source, five translations.

Usage: report.py SPLIT_FOLDER SRC TGT GENERATED_FILE
"""

import re
import sys
from pathlib import Path

from pairs import fail, read_lines
from sacrebleu.metrics import BLEU


def translations(path):
    """Detokenised hypotheses of fairseq-generate by sentence number."""
    found = {}
    for line in read_lines(path):
        if match := re.match(r"D-(\d+)\t[^\t]*\t?(.*)", line):
            found[int(match[1])] = match[2]
    return found


def main():
    folder, src, tgt, generated = sys.argv[1:]
    sources, references = (read_lines(Path(folder, f"test.{language}")) for language in (src, tgt))
    by_number = translations(Path(generated))
    if set(by_number) != set(range(len(sources))):
        fail(f"{generated} translates {len(by_number)} sentences, but the test set has {len(sources)}")
    ours = [by_number[number] for number in range(len(sources))]

    bleu = BLEU()
    score = bleu.corpus_score(ours, [references])
    print(f"Test set: {len(sources)} sentences, none of whose sources is in the training or validation set")
    print(score)
    print(f"signature: {bleu.get_signature()}")
    print(f"copying the source: BLEU = {bleu.corpus_score(sources, [references]).score:.2f}")
    for number in range(0, len(sources), -(-len(sources) // 5)):
        print(f"\n  source     {sources[number]}\n  reference  {references[number]}\n  ours       {ours[number]}")


if __name__ == "__main__":
    main()

"""Report a run's BLEU with its signature, the BLEU of copying the source, and five translations.

Usage: report.py SPLIT_FOLDER SRC TGT GENERATED_FILE
"""

import sys
from pathlib import Path

from pairs import fail, read_lines
from sacrebleu.metrics import BLEU

from fairseq_reservoir.studies.report.translations import by_line_number, read_sentences


def translations(path):
    """Map sentence numbers to the detokenised translations of fairseq-generate."""
    return read_sentences("\n".join(read_lines(path))).get("D", {})


def main():
    folder, src, tgt, generated = sys.argv[1:]
    sources, references = (read_lines(Path(folder, f"test.{language}")) for language in (src, tgt))
    by_number = translations(Path(generated))
    ours = by_line_number(by_number)
    if ours is None or len(ours) != len(sources):
        fail(f"{generated} translates {len(by_number)} sentences, but the test set has {len(sources)}")

    bleu = BLEU()
    score = bleu.corpus_score(ours, [references])
    print(f"Test set: {len(sources)} sentences; their sources are not in the training or validation set")
    print(score)
    print(f"signature: {bleu.get_signature()}")
    print(f"copying the source: BLEU = {bleu.corpus_score(sources, [references]).score:.2f}")
    for number in range(0, len(sources), -(-len(sources) // 5)):
        print(f"\n  source     {sources[number]}\n  reference  {references[number]}\n  ours       {ours[number]}")


if __name__ == "__main__":
    main()

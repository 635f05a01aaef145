"""Print BLEU of the binarised text's tokens, as papers on IWSLT14 do and fairseq-generate without --tokenizer.

Usage: tokenised.py GENERATE_LOG
"""

import sys
from pathlib import Path

from fairseq_reservoir.studies.report.translations import read_sentences, tokenised_bleu


def main(log):
    found = tokenised_bleu(read_sentences(Path(log).read_bytes().decode()))
    if found is None:
        sys.exit(f"tokenised: {log} does not hold both references (T-lines) and translations (H-lines)")
    print("Tokenised BLEU, only comparable where the words are the same: {:.2f}, {}".format(*found))


if __name__ == "__main__":
    main(sys.argv[1])
